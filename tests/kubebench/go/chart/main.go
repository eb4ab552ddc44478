// Command chart renders a Helm chart as `helm template` does, by Helm's own loader, values, schema and engine.
//
//	chart CHART NAMESPACE [KEY=VALUE]...
//
// All of Helm takes six minutes to build on two cores, as it brings a client of its own; this takes two.
package main

import (
	"fmt"
	"os"
	"sort"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/strvals"
)

func main() {
	if err := render(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func render(path, namespace string, set []string) error {
	chart, err := loader.Load(path)
	if err != nil {
		return err
	}
	if err := chart.Validate(); err != nil {
		return err
	}
	given := map[string]interface{}{}
	for _, value := range set {
		if err := strvals.ParseInto(value, given); err != nil {
			return err
		}
	}
	kubernetes := chartutil.KubeVersion{Version: "v1.36.0", Major: "1", Minor: "36"}
	if !chartutil.IsCompatibleRange(chart.Metadata.KubeVersion, kubernetes.Version) {
		return fmt.Errorf("kubeVersion %s does not allow %s", chart.Metadata.KubeVersion, kubernetes.Version)
	}
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.KubeVersion = kubernetes
	release := chartutil.ReleaseOptions{Name: chart.Name(), Namespace: namespace, IsInstall: true, Revision: 1}
	values, err := chartutil.ToRenderValues(chart, given, release, capabilities)
	if err != nil {
		return err
	}
	files, err := engine.Engine{Strict: true}.Render(chart, values)
	if err != nil {
		return err
	}
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if strings.HasSuffix(name, ".yaml") && strings.TrimSpace(files[name]) != "" {
			fmt.Printf("---\n%s\n", files[name])
		}
	}
	return nil
}
