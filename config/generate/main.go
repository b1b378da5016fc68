// Command generate writes the manifests of config that git ignores: PrometheusRules from rules/, and
// AddOnTemplates from the exporter's folders. `make config` calls it.
package main

import (
	"flag"
	"fmt"
	"os"

	"plimsoll.dev/plimsoll/config"
)

func main() {
	root := flag.String("root", ".", "root of the repository")
	flag.Parse()
	if err := config.Generate(*root); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}
