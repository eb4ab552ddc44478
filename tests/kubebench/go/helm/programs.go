//go:build programs

package programs

import _ "helm.sh/helm/v3/cmd/helm"
