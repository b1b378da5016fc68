// Command metricsmd writes the catalog of the exporter's metrics.
package main

import (
	"fmt"
	"os"

	"plimsoll.dev/plimsoll/exporter/internal/collector"
)

func main() {
	out, err := os.Create(os.Args[1])
	if err == nil {
		err = collector.WriteMarkdown(out)
	}
	if err == nil {
		err = out.Close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "metricsmd:", err)
		os.Exit(1)
	}
}
