package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		want string // part of the output; empty if the arguments are valid
	}{
		{"no arguments", nil, ""},
		{"arguments of the lab", []string{"--namespace=plimsoll-system", "--metrics-bind-address=127.0.0.1:0", "--leader-elect=false", "--multikueue-dispatch=off"}, ""},
		{"unknown flag", []string{"--bogus"}, "flag provided but not defined: -bogus"},
		{"argument", []string{"run"}, `plimsoll-operator: unexpected argument "run": use flags only`},
		{"dispatch", []string{"--multikueue-dispatch=x"}, `--multikueue-dispatch must be nominate or off, but is "x"`},
		{"namespace", []string{"--namespace="}, "--namespace must not be empty"},
		{"log format", []string{"--log-format=xml"}, `--log-format must be text or json, but is "xml"`},
		{"JSON", []string{"--log-format=json", "--log-level=debug"}, ""},
		{"log level", []string{"--log-level=loud"}, "invalid value"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out bytes.Buffer
			_, err := parse(tc.args, &out)
			if (err == nil) != (tc.want == "") || !strings.Contains(out.String(), tc.want) {
				t.Errorf("%v\n%s", err, out.String())
			}
		})
	}
}
