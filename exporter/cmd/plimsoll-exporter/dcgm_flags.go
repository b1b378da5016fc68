package main

import (
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kingpin/v2"
)

// All dcgm-exporter flags and environment variables are accepted. Those in ignoredFlags
// only apply to DCGM. Each is ignored with one warning.

// ignoredFlag is a flag of dcgm-exporter without effect in this exporter.
type ignoredFlag struct {
	name, env string
	short     rune
	parse     func(*kingpin.FlagClause) // sets the type of the value
	reason    string
}

// Types of the ignored flags.
func isBool(f *kingpin.FlagClause)     { f.Bool() }
func isText(f *kingpin.FlagClause)     { f.String() }
func isInt(f *kingpin.FlagClause)      { f.Int64() }
func isDuration(f *kingpin.FlagClause) { f.Duration() }
func isLogLevel(f *kingpin.FlagClause) {
	f.Enum("NONE", "FATAL", "ERROR", "WARN", "INFO", "DEBUG", "VERB")
}

var ignoredFlags = []ignoredFlag{
	{"remote-hostengine-info", "DCGM_REMOTE_HOSTENGINE_INFO", 'r', isText, "there is no host engine: devices are read through NVIDIA's driver library"},
	{"switch-devices", "DCGM_EXPORTER_OTHER_DEVICES_STR", 's', isText, "there are no metrics of NVSwitches"},
	{"cpu-devices", "DCGM_EXPORTER_CPU_DEVICES_STR", 'p', isText, "there are no metrics of CPUs"},
	{"fake-gpus", "DCGM_EXPORTER_USE_FAKE_GPUS", 0, isBool, "use --source=sim"},
	{"enable-dcgm-log", "DCGM_EXPORTER_ENABLE_DCGM_LOG", 0, isBool, "DCGM is not used"},
	{"dcgm-log-level", "DCGM_EXPORTER_DCGM_LOG_LEVEL", 0, isLogLevel, "DCGM is not used"},
	{"kubernetes-gpu-id-type", "DCGM_EXPORTER_KUBERNETES_GPU_ID_TYPE", 0, isText, "both types of ids are recognized"},
	{"watch-max-keep-age", "DCGM_EXPORTER_WATCH_MAX_KEEP_AGE", 0, isDuration, "DCGM is not used"},
	{"watch-max-keep-samples", "DCGM_EXPORTER_WATCH_MAX_KEEP_SAMPLES", 0, isInt, "DCGM is not used"},
	{"container-labels", "DCGM_EXPORTER_CONTAINER_LABELS", 0, isBool, "only containers of Kubernetes are known"},
	{"container-runtime-socket", "DCGM_CONTAINER_RUNTIME_SOCKET", 0, isText, "only containers of Kubernetes are known"},
	{"dump-enabled", "DCGM_EXPORTER_DUMP_ENABLED", 0, isBool, "use --once"},
	{"dump-directory", "DCGM_EXPORTER_DUMP_DIRECTORY", 0, isText, "use --once"},
	{"dump-retention", "DCGM_EXPORTER_DUMP_RETENTION", 0, isInt, "use --once"},
	{"dump-compression", "DCGM_EXPORTER_DUMP_COMPRESSION", 0, isBool, "use --once"},
	{"disable-startup-validate", "DISABLE_STARTUP_VALIDATE", 0, isBool, "a node without devices is an error only with --strict"},
	{"enable-gpu-bind-unbind-watch", "DCGM_EXPORTER_ENABLE_GPU_BIND_UNBIND_WATCH", 0, isBool, "each collection lists the devices"},
	{"gpu-bind-unbind-poll-interval", "DCGM_EXPORTER_GPU_BIND_UNBIND_POLL_INTERVAL", 0, isText, "each collection lists the devices"},
}

// serviceVariable matches the variables that Kubernetes sets for a Service named
// dcgm-exporter.
var serviceVariable = regexp.MustCompile(`^DCGM_EXPORTER_(SERVICE_(HOST|PORT(_.*)?)|PORT(_\d+_.*)?)$`)

// unknownVariables returns the variables of the environment that start like those of
// dcgm-exporter and set no flag. They may be misspelled.
func unknownVariables(app *kingpin.Application, environ []string) (unknown []string) {
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, "DCGM_EXPORTER_") || serviceVariable.MatchString(name) ||
			slices.ContainsFunc(app.Model().Flags, func(f *kingpin.FlagModel) bool { return f.Envar == name }) ||
			slices.ContainsFunc(ignoredFlags, func(f ignoredFlag) bool { return f.env == name }) {
			continue
		}
		unknown = append(unknown, name)
	}
	slices.Sort(unknown)
	return unknown
}

// ignoredFlagSet reports which ignored flags the user has set.
type ignoredFlagSet []func() (f ignoredFlag, isSet bool)

// addIgnoredFlags adds the ignored flags as hidden flags.
func addIgnoredFlags(app *kingpin.Application) ignoredFlagSet {
	var set ignoredFlagSet
	for _, f := range ignoredFlags {
		onCommandLine := new(bool)
		clause := app.Flag(f.name, "Flag of dcgm-exporter. Ignored: "+f.reason+".").Hidden().IsSetByUser(onCommandLine)
		if f.short != 0 {
			clause = clause.Short(f.short)
		}
		f.parse(clause)
		set = append(set, func() (ignoredFlag, bool) {
			_, inEnvironment := os.LookupEnv(f.env)
			return f, *onCommandLine || inEnvironment
		})
	}
	return set
}

// warn logs each ignored flag that is set, once.
func (s ignoredFlagSet) warn(log *slog.Logger) {
	for _, get := range s {
		if f, isSet := get(); isSet {
			log.Warn("ignoring a flag of dcgm-exporter", "flag", "--"+f.name, "reason", f.reason)
		}
	}
}

var flagWithValue = regexp.MustCompile(`^--?([a-zA-Z][a-zA-Z0-9.-]*)=(.*)$`)

// normalizeArgs converts arguments from dcgm-exporter's syntax to that of kingpin:
// --flag=true, -k=false, and long names after a single dash. After the command doctor,
// -o means --output and not dcgm-exporter's flag. If a flag is repeated, the last one wins.
func normalizeArgs(app *kingpin.Application, args []string) []string {
	out := slices.Clone(args)
	doctor := slices.Index(args, "doctor")
	for i, arg := range args {
		if arg == "--" {
			break
		}
		if format, ok := strings.CutPrefix(arg, "-o"); ok && doctor >= 0 && i > doctor && (format == "" || format[0] == '=') {
			out[i] = "--output" + format
			continue
		}
		out[i] = normalizeArg(app, arg)
	}
	return dropRepeatedFlags(app, out)
}

// dropRepeatedFlags keeps the last occurrence of each flag, except for flags that
// accumulate values. It returns invalid arguments as they are, because Parse reports them.
func dropRepeatedFlags(app *kingpin.Application, args []string) []string {
	context, err := app.ParseContext(args)
	if err != nil {
		return args
	}
	last := map[*kingpin.FlagClause]int{}
	for i, e := range context.Elements {
		if flag, ok := e.Clause.(*kingpin.FlagClause); ok {
			last[flag] = i
		}
	}
	var out []string
	for i, e := range context.Elements {
		switch clause := e.Clause.(type) {
		case *kingpin.CmdClause:
			out = append(out, clause.Model().Name)
		case *kingpin.FlagClause:
			flag := clause.Model()
			accumulates, ok := flag.Value.(interface{ IsCumulative() bool })
			if last[clause] == i || ok && accumulates.IsCumulative() {
				out = append(out, formatFlag(flag, *e.Value))
			}
		}
	}
	return out
}

func formatFlag(flag *kingpin.FlagModel, value string) string {
	switch {
	case !flag.IsBoolFlag():
		return "--" + flag.Name + "=" + value
	case value == "false":
		return "--no-" + flag.Name
	}
	return "--" + flag.Name
}

func normalizeArg(app *kingpin.Application, arg string) string {
	name, value, hasValue := strings.TrimLeft(arg, "-"), "", false
	if m := flagWithValue.FindStringSubmatch(arg); m != nil {
		name, value, hasValue = m[1], m[2], true
	}
	if !strings.HasPrefix(arg, "-") || name == "" {
		return arg
	}
	flag := findFlag(app, name)
	switch {
	case flag == nil:
	case hasValue && flag.IsBoolFlag():
		set, err := strconv.ParseBool(value)
		if err != nil {
			return "--" + flag.Name + "=" + value // kingpin reports the invalid value
		}
		if set {
			return "--" + flag.Name
		}
		return "--no-" + flag.Name
	case hasValue:
		return "--" + flag.Name + "=" + value
	case len(name) > 1:
		return "--" + flag.Name
	}
	return arg
}

// otherFlagNames are further names of dcgm-exporter's flags.
var otherFlagNames = map[string]string{"rbmn": "replace-blanks-in-model-name", "interval": "collect-interval"}

// findFlag returns the flag with a long or short name, or nil.
func findFlag(app *kingpin.Application, name string) *kingpin.FlagModel {
	if other, ok := otherFlagNames[name]; ok {
		name = other
	}
	for _, flag := range app.Model().Flags {
		if flag.Name == name || len(name) == 1 && string(flag.Short) == name {
			return flag
		}
	}
	return nil
}
