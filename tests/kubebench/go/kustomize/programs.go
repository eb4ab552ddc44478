//go:build programs

package programs

import _ "sigs.k8s.io/kustomize/kustomize/v5"
