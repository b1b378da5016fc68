//go:build integration

package workload_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
)

// logRecorder records the info lines that an operator logs.
type logRecorder struct {
	mu    sync.Mutex
	lines []logLine
}

// logLine is one line with its keys and values.
type logLine struct {
	message string
	values  map[string]string
}

// logger returns a logger of level 0 that records its lines.
func (l *logRecorder) logger() logr.Logger { return logr.New(&logSink{recorder: l}) }

// linesOf returns the lines with this message about a workload.
func (l *logRecorder) linesOf(message, workload string) func() []logLine {
	return func() []logLine {
		l.mu.Lock()
		defer l.mu.Unlock()
		var found []logLine
		for _, line := range l.lines {
			if line.message == message && line.values["workload"] == workload {
				found = append(found, line)
			}
		}
		return found
	}
}

// logSink implements logr.LogSink.
type logSink struct {
	recorder *logRecorder
	values   []any
}

func (s *logSink) Init(logr.RuntimeInfo)  {}
func (s *logSink) Enabled(level int) bool { return level == 0 }

func (s *logSink) Info(_ int, message string, keysAndValues ...any) {
	line := logLine{message: message, values: map[string]string{}}
	pairs := append(append([]any{}, s.values...), keysAndValues...)
	for i := 0; i+1 < len(pairs); i += 2 {
		line.values[fmt.Sprint(pairs[i])] = fmt.Sprint(pairs[i+1])
	}
	s.recorder.mu.Lock()
	defer s.recorder.mu.Unlock()
	s.recorder.lines = append(s.recorder.lines, line)
}

// Error ignores the line, because the tests of outages cause errors.
func (s *logSink) Error(error, string, ...any) {}

func (s *logSink) WithValues(keysAndValues ...any) logr.LogSink {
	return &logSink{recorder: s.recorder, values: append(append([]any{}, s.values...), keysAndValues...)}
}

func (s *logSink) WithName(string) logr.LogSink { return s }

func TestNominationLogsOneTransition(t *testing.T) {
	g := NewWithT(t)
	tg := newTestGate(t, "logging", nil)
	tg.connect("logging-1", "logging-2")
	fleet.reset(map[string]*clusterMetrics{"logging-1": {1, 8, 8, 64}, "logging-2": {0, 0, 0, 64}})
	tg.waitUntilConnected()
	wl := tg.submitGated("job", 1)
	g.Eventually(nominatedClusters(t, wl)).Should(Equal([]string{"logging-1"}))

	transitions := logs.linesOf("Workload transition", "logging/job")
	g.Eventually(transitions).Should(HaveLen(1))
	g.Consistently(transitions).WithTimeout(2 * time.Second).Should(HaveLen(1))
	decision := hasRoom("logging-1", 1) + quotaUnknown
	values := transitions()[0].values
	g.Expect(values).To(HaveKeyWithValue("gate", "logging"))
	g.Expect(values).To(HaveKeyWithValue("from", "Waiting"))
	g.Expect(values).To(HaveKeyWithValue("to", "Nominated"))
	g.Expect(values).To(HaveKeyWithValue("reason", "Placeable,Nominated"))
	g.Expect(values).To(HaveKeyWithValue("clusters", "[logging-1]"))
	g.Expect(values).To(HaveKeyWithValue("message", decision+"; "+nominatedMessage("logging-1", decision)))
}
