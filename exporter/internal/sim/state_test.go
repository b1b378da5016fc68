package sim

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestStateValidate(t *testing.T) {
	for _, tc := range []struct{ name, device, want string }{
		{"valid", `{"uuid":"GPU-a","model":"m","memoryMiB":10,"state":"ok"}`, ""},
		{"no devices", ``, "state.json: devices must not be empty"},
		{"no uuid", `{"model":"m","memoryMiB":10,"state":"ok"}`, "devices[0] must have a uuid"},
		{"unknown state", `{"uuid":"GPU-a","model":"m","memoryMiB":10,"state":"sad"}`, `devices[0].state must be ok, lost or hung, not "sad"`},
		{"background too high", `{"uuid":"GPU-a","model":"m","memoryMiB":10,"state":"ok","background":1.5}`, "devices[0].background must be within 0..1, not 1.5"},
		{"instance without profile", `{"uuid":"GPU-a","model":"m","memoryMiB":10,"state":"ok","instances":[{"uuid":"MIG-a","memoryMiB":5}]}`, "devices[0].instances must each have"},
		{"instances too large", `{"uuid":"GPU-a","model":"m","memoryMiB":10,"state":"ok","instances":[{"uuid":"MIG-a","profile":"p","memoryMiB":11}]}`, "the memory of the device, 10 MiB, not 11 MiB"},
		{"process without pid", `{"uuid":"GPU-a","model":"m","memoryMiB":10,"state":"ok","processes":[{"busy":0.5}]}`, "devices[0].processes must each have a pid"},
		{"processes too busy", `{"uuid":"GPU-a","model":"m","memoryMiB":10,"state":"ok","processes":[{"pid":1,"busy":0.75},{"pid":2,"busy":0.75}]}`, "a total busy of at most 1, not 1.5"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var s State
			if err := json.Unmarshal([]byte(`{"devices":[`+tc.device+`]}`), &s); err != nil {
				t.Fatal(err)
			}
			err := s.validate("state.json")
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want %q", err, tc.want)
			}
		})
	}
}
