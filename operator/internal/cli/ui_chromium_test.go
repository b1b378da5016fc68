//go:build chromium

package cli

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"plimsoll.dev/plimsoll/test/look/chromium"
)

var pictures = flag.String("pictures", "", "folder for the pictures of the README")

// visit is a page that Chromium opens.
type visit struct {
	Name       string `json:"name"`
	URL        string `json:"url"`
	Width      int    `json:"width"`
	Theme      string `json:"theme"`
	JavaScript bool   `json:"javascript"`
	Picture    string `json:"picture,omitempty"`
}

// onLive calls change when the script writes that its page is live.
type onLive struct{ change func() }

// Write implements io.Writer.
func (o onLive) Write(p []byte) (int, error) {
	if strings.Contains(string(p), "live") {
		o.change()
	}
	return len(p), nil
}

// Each page, also an empty one, with faults, with 5,000 jobs and with hostile texts, fits into narrow and wide windows, is
// readable in both themes, and works without JavaScript. With JavaScript it shows what changes.
func TestUIInChromium(t *testing.T) {
	driver, err := chromium.Prepare(t.Context(), "pages", os.DirFS(filepath.Join("..", "..", "..", "test", "look", "pages")), "chromium", "ci")
	if err != nil {
		t.Fatal(err)
	}
	normal := newUIHub(t, nil)
	hubs := map[string]*uiHub{"normal": normal, "empty": emptyUIHub(t), "hostile": hostileUIHub(t),
		"faults": newUIHub(t, map[string]string{"forbidden": "managedclusters admissionchecks scoringpolicies"}), "many": newUIHub(t, map[string]string{"hub/workloads.yaml": jobs(5000)})}
	hubs["empty"].prometheus, hubs["faults"].prometheus = "", "http://127.0.0.1:1"
	var visits []visit
	var live string
	for name, h := range hubs {
		args := []string{"--refresh", map[bool]string{true: "1s", false: "30s"}[h == normal]}
		if h.prometheus != "" {
			args = append(args, "--prometheus", h.prometheus)
		}
		base, key, _ := strings.Cut(h.serve(t, args...), "/?")
		if h == normal {
			live = base + "/queue"
		}
		paths := append([]string{"/job?namespace=team-a&name=job/train-1", "/job", "/queue?q=nothing"}, uiPages...)
		if name == "hostile" {
			paths = append(paths, "/job?namespace=team-a&name=bad")
		}
		for i := range 8 {
			width, theme, javascript := []int{380, 1280}[i&1], []string{"light", "dark"}[i>>1&1], i>>2 == 0
			if h != normal && i != 2 && i != 5 { // 380 pixels, dark, with JavaScript; 1280 pixels, light, without
				continue
			}
			for _, path := range append([]string{"/?" + key}, paths...) {
				visits = append(visits, visit{fmt.Sprintf("%s %s, %d, %s, JavaScript %v", name, path, width, theme, javascript), base + path, width, theme, javascript, ""})
			}
		}
		if h == normal {
			for file, path := range map[string]string{"ui-queue": "/queue", "ui-job": uiPages[2], "ui-fleet": "/", "ui-policies": "/policies"} {
				visits = append(visits, visit{file, base + path, 900, "light", false, filepath.Join(h.dir, file+".png")})
			}
		}
	}
	task := map[string]any{"chromium": driver.Chromium, "visits": visits, "live": map[string]string{"url": live, "before": "best is cluster2 with 6", "after": "best is cluster4 with 7"}}
	text, err := json.Marshal(task)
	if err != nil {
		t.Fatal(err)
	}
	file := normal.write(t, "visits.json", string(text))
	changed := strings.Split(uiFile(t, "hub/workloads.yaml"), "---\n")[0]
	change := func() {
		if err := normal.hub.patch([]byte(strings.ReplaceAll(changed, "best is cluster2 with 6", "best is cluster4 with 7"))); err != nil {
			t.Error(err)
		}
	}
	if err := driver.Run(t.Context(), onLive{change}, "node", "check.mjs", file); err != nil {
		t.Fatal(err)
	}
	var problems []string
	text, err = os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &problems)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Error(p)
	}
	if *pictures == "" {
		return
	}
	for file, height := range map[string]int{"ui-fleet.png": 827, "ui-queue.png": 827, "ui-job.png": 620, "ui-policies.png": 827} {
		if err := chromium.Crop(filepath.Join(normal.dir, file), filepath.Join(*pictures, file), height); err != nil {
			t.Error(err)
		}
	}
}
