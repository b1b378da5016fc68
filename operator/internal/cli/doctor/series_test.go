package doctor

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// doctor queries series that the rules record or the exporter serves.
func TestDoctorQueriesShippedSeries(t *testing.T) {
	var shipped []byte
	for _, pattern := range []string{"../../../../rules/recording-*.yaml", "../../../../exporter/METRICS.md"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, error %v", pattern, len(files), err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			shipped = append(shipped, text...)
		}
	}
	series := []string{exporterSeries, quotaSeries}
	for _, needed := range neededSeries {
		series = append(series, needed.series)
	}
	for _, name := range series {
		if !bytes.Contains(shipped, []byte("record: "+name+"\n")) && !bytes.Contains(shipped, []byte("| `"+name+"` |")) {
			t.Errorf("no rule or exporter has %s", name)
		}
	}
}
