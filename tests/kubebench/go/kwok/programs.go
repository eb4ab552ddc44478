//go:build programs

package programs

import _ "sigs.k8s.io/kwok/cmd/kwok"
