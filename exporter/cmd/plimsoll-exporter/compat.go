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

// foreign is an option of dcgm-exporter that has no meaning here.
type foreign struct {
	name, env string
	short     rune
	flag      bool // takes no value
	why       string
}

var foreigns = []foreign{
	{"remote-hostengine-info", "DCGM_REMOTE_HOSTENGINE_INFO", 'r', false, "there is no host engine: devices are read through NVIDIA's driver library"},
	{"switch-devices", "DCGM_EXPORTER_OTHER_DEVICES_STR", 's', false, "NVSwitches are not exposed"},
	{"cpu-devices", "DCGM_EXPORTER_CPU_DEVICES_STR", 'p', false, "processors are not exposed"},
	{"fake-gpus", "DCGM_EXPORTER_USE_FAKE_GPUS", 0, true, "use --source=sim"},
	{"enable-dcgm-log", "DCGM_EXPORTER_ENABLE_DCGM_LOG", 0, true, "DCGM is not used"},
	{"dcgm-log-level", "DCGM_EXPORTER_DCGM_LOG_LEVEL", 0, false, "DCGM is not used"},
	{"kubernetes-gpu-id-type", "DCGM_EXPORTER_KUBERNETES_GPU_ID_TYPE", 0, false, "both forms of ids are understood"},
	{"dump-enabled", "DCGM_EXPORTER_DUMP_ENABLED", 0, true, "use --once"},
	{"dump-directory", "DCGM_EXPORTER_DUMP_DIRECTORY", 0, false, "use --once"},
	{"dump-retention", "DCGM_EXPORTER_DUMP_RETENTION", 0, false, "use --once"},
	{"dump-compression", "DCGM_EXPORTER_DUMP_COMPRESSION", 0, true, "use --once"},
	{"disable-startup-validate", "DISABLE_STARTUP_VALIDATE", 0, true, "a node without devices is no error unless --strict is set"},
	{"enable-gpu-bind-unbind-watch", "DCGM_EXPORTER_ENABLE_GPU_BIND_UNBIND_WATCH", 0, true, "devices are listed at each collection"},
	{"gpu-bind-unbind-poll-interval", "DCGM_EXPORTER_GPU_BIND_UNBIND_POLL_INTERVAL", 0, false, "devices are listed at each collection"},
}

// given are the foreign options that the user set.
type given []func() (foreign, bool)

func addForeigns(app *kingpin.Application) given {
	var all given
	for _, f := range foreigns {
		set := new(bool)
		clause := app.Flag(f.name, "Of dcgm-exporter; without meaning here: "+f.why+".").Hidden().IsSetByUser(set)
		if f.short != 0 {
			clause = clause.Short(f.short)
		}
		if f.flag {
			clause.Bool()
		} else {
			clause.String()
		}
		all = append(all, func() (foreign, bool) {
			_, inEnv := os.LookupEnv(f.env)
			return f, *set || inEnv
		})
	}
	return all
}

func (g given) warn(log *slog.Logger) {
	for _, option := range g {
		if f, set := option(); set {
			log.Warn("an option of dcgm-exporter has no meaning here and is ignored", "option", "--"+f.name, "why", f.why)
		}
	}
}

var assigned = regexp.MustCompile(`^--?([a-zA-Z][a-zA-Z0-9.-]*)=(.*)$`)

// normalize writes arguments as dcgm-exporter takes them in the way that kingpin
// does: --flag=true, -k=false, and long names behind a single dash. After doctor
// -o is --output, not dcgm-exporter's.
func normalize(app *kingpin.Application, args []string) []string {
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
		out[i] = rewrite(app, arg)
	}
	return out
}

func rewrite(app *kingpin.Application, arg string) string {
	name, value, equals := strings.TrimLeft(arg, "-"), "", false
	if m := assigned.FindStringSubmatch(arg); m != nil {
		name, value, equals = m[1], m[2], true
	}
	if !strings.HasPrefix(arg, "-") || name == "" {
		return arg
	}
	flag := lookUp(app, name)
	switch {
	case flag == nil:
	case equals && flag.IsBoolFlag():
		set, err := strconv.ParseBool(value)
		if err != nil {
			return arg
		}
		if set {
			return "--" + flag.Name
		}
		return "--no-" + flag.Name
	case equals:
		return "--" + flag.Name + "=" + value
	case len(name) > 1:
		return "--" + flag.Name
	}
	return arg
}

func lookUp(app *kingpin.Application, name string) *kingpin.FlagModel {
	if name == "rbmn" { // dcgm-exporter's own short form
		name = "replace-blanks-in-model-name"
	}
	for _, flag := range app.Model().Flags {
		if flag.Name == name || len(name) == 1 && string(flag.Short) == name {
			return flag
		}
	}
	return nil
}
