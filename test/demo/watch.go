package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// await polls as fleet.Await does and keeps the table on the screen current.
func (d *demo) await(ctx context.Context, what string, done func(context.Context) error) error {
	drawn := time.Time{}
	return fleet.Await(ctx, what, func(ctx context.Context) error {
		if time.Since(drawn) > time.Second {
			if table, err := d.table(ctx); err == nil {
				d.screen.draw(table)
			}
			drawn = time.Now()
		}
		return done(ctx)
	})
}

func (d *demo) submitAndRun(ctx context.Context, j fleet.Job) (string, error) {
	if err := d.fleet.Submit(ctx, j); err != nil {
		return "", err
	}
	d.jobs = append(d.jobs, j.Name)
	return d.runs(ctx, j.Name)
}

// runs waits until a job runs on exactly one cluster and tells why it went there.
func (d *demo) runs(ctx context.Context, name string) (string, error) {
	var v fleet.JobView
	err := d.await(ctx, name+" to run", func(ctx context.Context) error {
		var err error
		if v, err = d.fleet.View(ctx, name); err != nil {
			return err
		}
		return once(v)
	})
	if err != nil {
		return "", err
	}
	d.screen.printf("      %-14s -> %s: %s\n", name, v.Cluster, v.Message)
	return v.Cluster, nil
}

// end deletes a job and waits until no copy of it is left.
func (d *demo) end(ctx context.Context, name string) error {
	if err := d.fleet.DeleteJob(ctx, name); err != nil {
		return err
	}
	d.jobs = slices.DeleteFunc(d.jobs, func(job string) bool { return job == name })
	return d.await(ctx, name+" to be gone", func(ctx context.Context) error {
		v, err := d.fleet.View(ctx, name)
		if err == nil && len(v.Copies) > 0 {
			err = fmt.Errorf("copies of it on %v", v.Copies)
		}
		return err
	})
}

// once is an error unless the job runs in one place, and no other copy exists.
func once(v fleet.JobView) error {
	if len(v.Running) != 1 || len(v.Copies) != 1 || v.Cluster != v.Running[0] {
		return fmt.Errorf("%s: admitted by %q, copies on %v, running on %v, nominated %v, gate %s (%s)",
			v.Name, v.Cluster, v.Copies, v.Running, v.Nominated, v.Gate, v.Message)
	}
	return nil
}

// where each job of the demo runs.
func (d *demo) where(ctx context.Context) (map[string]string, error) {
	at := map[string]string{}
	for _, name := range d.jobs {
		v, err := d.fleet.View(ctx, name)
		if err != nil {
			return nil, err
		}
		if err := once(v); err != nil {
			return nil, err
		}
		at[name] = v.Cluster
	}
	return at, nil
}

// unmoved is an error if one of the jobs is not exactly where it was.
func (d *demo) unmoved(ctx context.Context, before map[string]string) error {
	now, err := d.where(ctx)
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
