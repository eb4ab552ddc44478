//go:build programs

package programs

import _ "go.etcd.io/etcd/server/v3"
