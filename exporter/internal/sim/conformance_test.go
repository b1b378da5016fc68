package sim

import (
	"testing"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/device/conformance"
)

func TestScenariosConform(t *testing.T) {
	for _, scenario := range Scenarios() {
		if scenario == "gpu-hung" { // the collector handles hung devices
			continue
		}
		t.Run(scenario, func(t *testing.T) {
			conformance.Test(t, func(t *testing.T) conformance.Subject {
				s, err := FromScenario(scenario, 1, func(uuid string) bool { return len(uuid) > 4 && uuid[4] < '8' }, discardLog)
				if err != nil {
					t.Fatal(err)
				}
				clock := time.Now().Add(10 * time.Second) // scenarios lose devices by then
				s.now = func() time.Time { return clock }
				lost := map[string]bool{}
				nextState := s.nextState
				s.nextState = func(now time.Time) (State, []device.XID, error) {
					state, xids, err := nextState(now)
					for i := range state.Devices {
						if lost[state.Devices[i].UUID] {
							state.Devices[i].State = stateLost
						}
					}
					return state, xids, err
				}
				return conformance.Subject{Source: s, Advance: func(d time.Duration) { clock = clock.Add(d) }, Lose: func(d device.Device) { lost[d.UUID] = true }}
			})
		})
	}
}
