// Command look draws the dashboards with Grafana's own components in a headless Chromium,
// and fails if a panel is empty, shows no number, cuts a header or a name in a legend, or has too many series.
//
// By default it shows a scripted fleet with faults. With --url it shows any Prometheus.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"plimsoll.dev/plimsoll/test/look/chromium"
	"plimsoll.dev/plimsoll/test/look/scripted"
)

// pictureHeight is the height in pixels of a picture for documents: the upper part of a dashboard.
const pictureHeight = 1280

type options struct {
	boards, widths, themes []string
	variables              []string
	folder, url, browser   string
	listen, picture        string
	at                     int64
	oneCluster             bool
	scrape, last           time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	o, err := parse(os.Args[1:])
	if err == nil {
		err = run(ctx, o)
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "look:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("look", flag.ContinueOnError)
	list := func(target *[]string, name, preset, usage string) {
		*target = strings.Split(preset, ",")
		flags.Func(name, usage+" (default "+preset+")", func(s string) error { *target = strings.Split(s, ","); return nil })
	}
	list(&o.boards, "boards", "fleet,devices,jobs,tpu,scores,admission,self", "dashboards to draw")
	list(&o.widths, "widths", "1280,1600", "widths in pixels")
	list(&o.themes, "themes", "dark,light", "themes")
	flags.Func("var", "NAME=VALUE of a variable; may be repeated", func(s string) error { o.variables = append(o.variables, s); return nil })
	flags.StringVar(&o.folder, "out", filepath.Join(os.TempDir(), "plimsoll-look"), "folder of the pictures")
	flags.StringVar(&o.url, "url", "", "URL of a Prometheus instead of the scripted fleet")
	flags.Int64Var(&o.at, "at", 0, "with --url: Unix time that the dashboards end at (default now)")
	flags.DurationVar(&o.scrape, "scrape", 15*time.Second, "with --url: scrape interval")
	flags.DurationVar(&o.last, "last", 0, "time range (default that of the dashboard)")
	flags.BoolVar(&o.oneCluster, "one-cluster", false, "show one Prometheus whose series have no label cluster")
	flags.StringVar(&o.browser, "chromium", "chromium", "program of Chromium")
	flags.StringVar(&o.picture, "picture", "", "copy the upper part of the first picture to this file, and check nothing")
	flags.StringVar(&o.listen, "listen", "", "only serve the scripted fleet's Prometheus API on this address")
	return o, flags.Parse(args)
}

// run expects the root of the repository as its working directory.
func run(ctx context.Context, o options) error {
	source, err := openSource(ctx, o)
	if err != nil {
		return err
	}
	defer source.close()
	if o.listen != "" {
		return serve(ctx, o.listen, source)
	}
	d, err := prepareBrowser(ctx, o.browser)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: newHandler(source.api, d.Dir, "dashboards"), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }() // ends with Close
	defer func() { _ = server.Close() }()
	shots := o.shots("http://"+listener.Addr().String(), source)
	if err := shoot(ctx, d, shots, o.folder); err != nil {
		return err
	}
	if o.picture != "" {
		return chromium.Crop(shots[0].Picture, o.picture, pictureHeight)
	}
	return check(shots, o.oneCluster)
}

// serve runs queries until ctx ends.
func serve(ctx context.Context, address string, s source) error {
	fmt.Printf("http://%s serves queries about the fleet up to --at %d\n", address, s.end)
	server := &http.Server{Addr: address, Handler: s.api, ReadHeaderTimeout: time.Minute}
	go func() { <-ctx.Done(); _ = server.Close() }()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// source of the data that the dashboards show.
type source struct {
	name   string
	api    http.Handler
	end    int64
	scrape time.Duration
	close  func()
}

func openSource(ctx context.Context, o options) (source, error) {
	if o.url != "" {
		api, err := proxy(o.url)
		end := o.at
		if end == 0 {
			end = time.Now().Unix()
		}
		return source{"Prometheus", api, end, o.scrape, func() {}}, err
	}
	rules, err := scripted.RuleFiles("rules")
	if err != nil {
		return source{}, err
	}
	dir, err := os.MkdirTemp("", "plimsoll-look-tsdb")
	if err != nil {
		return source{}, err
	}
	fleet, name := scripted.NewFleet(time.Now()), "Thanos"
	if o.oneCluster {
		fleet, name = scripted.NewCluster(time.Now()), "Prometheus"
	}
	fmt.Println("Recording three hours of the scripted fleet takes one to five minutes.")
	p, err := scripted.Open(ctx, fleet, dir, rules, slog.New(slog.DiscardHandler))
	if err != nil {
		return source{}, errors.Join(err, os.RemoveAll(dir))
	}
	return source{name, p, p.End().Unix(), scripted.ScrapeInterval, func() { _ = p.Close(); _ = os.RemoveAll(dir) }}, nil
}

// shots lists the pages to draw.
func (o options) shots(base string, s source) []shot {
	var all []shot
	for _, board := range o.boards {
		for _, width := range o.widths {
			for _, theme := range o.themes {
				query := []string{
					"board=" + board + ".json", "width=" + width, "theme=" + theme, "source=" + s.name,
					"to=" + strconv.FormatInt(s.end, 10), "scrape=" + strconv.Itoa(int(s.scrape.Seconds())),
				}
				if o.last > 0 {
					query = append(query, "span="+strconv.Itoa(int(o.last.Seconds())))
				}
				for _, v := range o.variables {
					query = append(query, "var-"+v)
				}
				name := strings.Join(slices.Concat([]string{board, width, theme}, o.variables), "-")
				name = filepath.Join(o.folder, strings.NewReplacer("/", "_", "=", "_").Replace(name))
				w, _ := strconv.Atoi(width) // the page fails without a width
				all = append(all, shot{Dashboard: board + ".json", URL: base + "/?" + strings.Join(query, "&"), Width: w, Picture: name + ".png", Report: name + ".json"})
			}
		}
	}
	return all
}
