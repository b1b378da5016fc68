//go:build !race

package query

import (
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// The tests of this file are much slower with the race detector. Others test the same goroutines with it.

// TestMemoryOfHostileResponses sends four responses of 64 MiB at once. All memory that
// their decoding allocates, garbage included, is below 96 MiB.
func TestMemoryOfHostileResponses(t *testing.T) {
	huge := strings.Repeat("x", 1<<20)
	for name, tc := range map[string]struct {
		write  func(w io.Writer)
		reason Reason
	}{
		"tiny series": {func(w io.Writer) { tinySeries(w, 64<<20) }, ReasonTooLarge},
		"one long label": {func(w io.Writer) {
			writeRepeated(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"cluster":"`, huge, 65)
		}, ReasonTooLarge},
		"one long key": {func(w io.Writer) { writeRepeated(w, `{"`, huge, 65) }, ReasonTooLarge},
		"many labels": {func(w io.Writer) {
			_, err := io.WriteString(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{`)
			var label []byte
			for i := int64(0); err == nil && i < 5<<20; i++ {
				label = append(strconv.AppendInt(append(label[:0], `"FOREIGN`...), i, 10), `":"",`...)
				_, err = w.Write(label)
			}
		}, ReasonTooLarge},
		"deep": {func(w io.Writer) { writeRepeated(w, `{"a":`, strings.Repeat("[", 1<<20), 65) }, ReasonBadResponse},
		"warnings": {func(w io.Writer) {
			writeRepeated(w, `{"warnings":["s3cret-token"`, strings.Repeat(`,"FOREIGN s3cret-token"`, 1<<15), 100)
		}, ReasonTooLarge},
		"marks": {func(w io.Writer) {
			writeRepeated(w, `{"isPartial":true`, strings.Repeat(`,"isPartial":true`, 1<<16), 65)
		}, ReasonTooLarge},
		"whitespace": {func(w io.Writer) { writeRepeated(w, ``, strings.Repeat(" ", 1<<20), 65) }, ReasonTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, hostileConfig(serve(t, func(w http.ResponseWriter, _ *http.Request) { tc.write(w) })))
			c.cfg.Timeout = time.Minute
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			var group sync.WaitGroup
			for range 4 {
				group.Go(func() {
					if _, err := c.Query(t.Context(), "up", at); ReasonOf(err) != tc.reason || strings.Contains(err.Error(), "FOREIGN") {
						t.Errorf("%v, want %s", err, tc.reason)
					}
				})
			}
			group.Wait()
			runtime.ReadMemStats(&after)
			if allocated := (after.TotalAlloc - before.TotalAlloc) >> 20; allocated > 96 {
				t.Errorf("four responses of 64 MiB allocated %d MiB", allocated)
			} else {
				t.Logf("allocated %d MiB", allocated)
			}
		})
	}
}

func TestGzipBomb(t *testing.T) {
	c := newClient(t, hostileConfig(serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "gzip" {
			t.Errorf("Accept-Encoding %q", r.Header.Get("Accept-Encoding"))
		}
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		writeRepeated(z, `{"x":"`, strings.Repeat("x", 1<<20), 512)
		_ = z.Close()
	})))
	expectFailure(t, c, ReasonTooLarge, "too many bytes")
}

// TestOneByteASecond delays a hostile source to its timeout. A query of another source
// succeeds meanwhile.
func TestOneByteASecond(t *testing.T) {
	slow := newClient(t, hostileConfig(serve(t, func(w http.ResponseWriter, r *http.Request) {
		for _, b := range vectorOf(1000) {
			_, _ = w.Write([]byte{b})
			w.(http.Flusher).Flush()
			select {
			case <-time.After(20 * time.Millisecond):
			case <-r.Context().Done():
				return
			}
		}
	})))
	slow.cfg.Timeout = 500 * time.Millisecond
	failed := make(chan error)
	for range 4 {
		go func() { _, err := slow.Query(t.Context(), "up", at); failed <- err }()
	}
	honest := newClient(t, hostileConfig(serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(vectorOf(100000)) })))
	start := time.Now()
	if result, err := honest.Query(t.Context(), "up", at); err != nil || len(result.Samples) != 100000 {
		t.Errorf("another source: %d samples, %v", len(result.Samples), err)
	}
	t.Logf("100,000 series took %v", time.Since(start))
	for range 4 {
		if err := <-failed; ReasonOf(err) != ReasonTimeout {
			t.Error(err)
		}
	}
}

// TestAnEndpointThatIsNotReachedIsReported has more hung endpoints than fit into the time.
// Each of them is a failure in the result, and the first in a later round.
func TestAnEndpointThatIsNotReachedIsReported(t *testing.T) {
	names := append(clusterNames("hung", 400), "live-0000")
	c, requests := fleetOf(t, names)
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		result, err := c.Query(ctx, "up", at)
		cancel()
		if err != nil && ReasonOf(err) == ReasonTimeout {
			continue // the endpoint that responds had no turn in the first round
		}
		if err != nil || len(result.Samples)+len(result.Failed) != len(names) {
			t.Errorf("%d clusters responded, %d failed, %v", len(result.Samples), len(result.Failed), err)
		}
	}
	if counts := requests(); counts["live-0000"] == 0 {
		t.Errorf("two rounds queried %d endpoints, not the one that responds", len(counts))
	}
}

// TestJoinedResultsHaveALimit: each endpoint stays within its limits, and all together would
// exceed the memory of the process.
func TestJoinedResultsHaveALimit(t *testing.T) {
	const series = 60_000
	body := vector(strings.TrimSuffix(strings.Repeat(`{"metric":{},"value":[0,"0"]},`, series), ","))
	names := clusterNames("c", 12)
	c := newClient(t, Config{
		URLTemplate: serve(t, reply(200, body)) + "/{cluster}", MaxSeries: series, MaxResponseBytes: 4 << 20, Timeout: time.Minute,
		Clusters: func(context.Context) ([]string, error) { return names, nil },
	})
	got, err := c.Query(context.Background(), "up", at)
	if want := maxDecodedBytes / (sampleBytes * series); err != nil || len(got.Samples) != want*series || len(got.Failed) != len(names)-want {
		t.Fatalf("%d series, %d clusters failed, %v; want the series of %d clusters", len(got.Samples), len(got.Failed), err, want)
	}
	for cluster, message := range got.Failed {
		if message != "TooLarge: the decoded results of all endpoints exceed 48 MiB: aggregate the query" {
			t.Errorf("%s: %s", cluster, message)
		}
	}
}
