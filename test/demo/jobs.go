package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// awaitWithTable calls done until it returns nil, and redraws the table every second.
func awaitWithTable(ctx context.Context, what string, drawTable func(context.Context), done func(context.Context) error) error {
	drawn := time.Time{}
	return fleet.Await(ctx, what, func(ctx context.Context) error {
		if time.Since(drawn) > time.Second {
			drawTable(ctx)
			drawn = time.Now()
		}
		return done(ctx)
	})
}

func (d *demo) await(ctx context.Context, what string, done func(context.Context) error) error {
	return awaitWithTable(ctx, what, d.drawTable, done)
}

func (d *demo) drawTable(ctx context.Context) {
	table, err := d.table(ctx)
	if ctx.Err() != nil { // keep the last table
		return
	}
	if err != nil {
		table = fmt.Sprintf("      no table: %v\n", err)
	}
	d.screen.draw(table)
}

func (d *demo) submitAndAwait(ctx context.Context, j fleet.Job) (string, error) {
	if err := d.fleet.Submit(ctx, j); err != nil {
		return "", err
	}
	d.jobs = append(d.jobs, j.Name)
	return d.awaitRunning(ctx, j.Name)
}

// awaitRunning waits until a job runs on exactly one cluster. It prints the cluster
// and the message of the gate.
func (d *demo) awaitRunning(ctx context.Context, name string) (string, error) {
	var v fleet.JobView
	err := d.await(ctx, name+" to run", func(ctx context.Context) error {
		var err error
		if v, err = d.fleet.View(ctx, name); err != nil {
			return err
		}
		return checkRunsOnce(v)
	})
	if err != nil {
		return "", err
	}
	d.screen.printf("      %-14s -> %s: %s\n", name, v.Cluster, v.CheckMessage)
	return v.Cluster, nil
}

// deleteJob deletes a job and waits until all its copies are deleted.
func (d *demo) deleteJob(ctx context.Context, name string) error {
	if err := d.fleet.DeleteJob(ctx, name); err != nil {
		return err
	}
	d.jobs = slices.DeleteFunc(d.jobs, func(job string) bool { return job == name })
	return d.await(ctx, "the copies of "+name+" to be deleted", func(ctx context.Context) error {
		v, err := d.fleet.View(ctx, name)
		if err == nil && len(v.Copies) > 0 {
			err = fmt.Errorf("there are copies on %v", v.Copies)
		}
		return err
	})
}

// checkRunsOnce returns an error unless the job runs on one cluster and has no
// other copy.
func checkRunsOnce(v fleet.JobView) error {
	if len(v.Running) != 1 || len(v.Copies) != 1 || v.Cluster != v.Running[0] {
		return fmt.Errorf("%s: admitted by %q, copies on %v, running on %v, nominated %v, check %s (%s)",
			v.Name, v.Cluster, v.Copies, v.Running, v.Nominated, v.CheckState, v.CheckMessage)
	}
	return nil
}

// locateJobs returns the cluster of each job of the demo.
func (d *demo) locateJobs(ctx context.Context) (map[string]string, error) {
	clusters := map[string]string{}
	for _, name := range d.jobs {
		v, err := d.fleet.View(ctx, name)
		if err != nil {
			return nil, err
		}
		if err := checkRunsOnce(v); err != nil {
			return nil, err
		}
		clusters[name] = v.Cluster
	}
	return clusters, nil
}

// checkUnmoved returns an error unless each job runs on the same cluster as before.
func (d *demo) checkUnmoved(ctx context.Context, before map[string]string) error {
	now, err := d.locateJobs(ctx)
	if err != nil {
		return err
	}
	for name, cluster := range before {
		if now[name] != cluster {
			return fmt.Errorf("%s ran on %s and is now on %q", name, cluster, now[name])
		}
	}
	return nil
}

// anyJob returns the name of a job that exists, or "".
func (d *demo) anyJob() string {
	if len(d.jobs) == 0 {
		return ""
	}
	return d.jobs[len(d.jobs)-1]
}
