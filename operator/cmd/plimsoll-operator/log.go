package main

import (
	"io"
	"log/slog"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2" //nolint:depguard // passes its lines to slog
	ctrl "sigs.k8s.io/controller-runtime"
)

// Values of --log-format.
const (
	logFormatText = "text"
	logFormatJSON = "json"
)

// newLogHandler returns a handler that writes one line per record, as key=value pairs or
// as JSON. It prints all levels below INFO as DEBUG: logr has more than one debug level.
func newLogHandler(out io.Writer, format string, level slog.Level) slog.Handler {
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if l, ok := a.Value.Any().(slog.Level); ok && len(groups) == 0 && a.Key == slog.LevelKey && l < slog.LevelInfo {
			a.Value = slog.StringValue(slog.LevelDebug.String())
		}
		return a
	}}
	if format == logFormatJSON {
		return slog.NewJSONHandler(out, opts)
	}
	return slog.NewTextHandler(out, opts)
}

// setLoggers makes the libraries log to the handler. The leader election and the watches of
// client-go log through klog.
func setLoggers(handler slog.Handler) {
	ctrl.SetLogger(logr.FromSlogHandler(handler))
	klog.SetSlogLogger(slog.New(handler))
}
