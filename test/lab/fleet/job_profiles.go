package fleet

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	plimsoll "plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// CreateProfile creates the JobProfile of a job that used this utilization of a model in one run, in
// percent.
func (f *Fleet) CreateProfile(ctx context.Context, name string, model GPUModel, percent int64) error {
	profile := &plimsoll.JobProfile{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name}}
	if err := f.Hub.Client.Create(ctx, profile); err != nil {
		return err
	}
	now := metav1.Now()
	profile.Status = plimsoll.JobProfileStatus{KeySource: plimsoll.ProfileFromLabel, Label: name, Runs: 1, LastRunTime: &now, Models: []plimsoll.ModelProfile{{
		Model: model.Label, Runs: 1, LastRunTime: now, UtilizationP50Percent: &percent, Class: plimsoll.ClassInference, Bottleneck: plimsoll.BottleneckUnknown}}}
	return f.Hub.Client.Status().Update(ctx, profile)
}
