package collector

import (
	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// Metrics of AMD GPUs. NVIDIA GPUs have dcgm-exporter's metrics instead, and TPUs those of
// GKE.
var (
	memoryTotal = metric{"plimsoll_device_memory_total_bytes", gauge, deviceLabels, "Memory of the device in bytes. AMD GPUs only."}
	memoryUsed  = metric{"plimsoll_device_memory_used_bytes", gauge, deviceLabels, "Used memory of the device in bytes. AMD GPUs only."}
	temperature = metric{"plimsoll_device_temperature_celsius", gauge, append(deviceLabels[:4:4], "sensor"), "Temperature in degrees Celsius. sensor is gpu (the hottest point of the chip, otherwise its edge) or memory. AMD GPUs only."}
	powerDraw   = metric{"plimsoll_device_power_watts", gauge, deviceLabels, "Power draw of the device in watts. AMD GPUs only."}
	energyTotal = metric{"plimsoll_device_energy_joules_total", counter, deviceLabels, "Energy of the device in joules since the driver was loaded. AMD GPUs of the series MI200 and newer only."}
)

// sensors are the metrics of AMD GPUs that are values of a field.
var sensors = []struct {
	field  device.Field
	metric metric
	scale  float64 // from the unit of the field
	labels []string
}{
	{device.GPUUtil, busyRatio, 0.01, nil},
	{device.FBTotal, memoryTotal, 1 << 20, nil},
	{device.FBUsed, memoryUsed, 1 << 20, nil},
	{device.GPUTemp, temperature, 1, []string{"gpu"}},
	{device.MemoryTemp, temperature, 1, []string{"memory"}},
	{device.PowerUsage, powerDraw, 1, nil},
	{device.TotalEnergy, energyTotal, 0.001, nil},
}

// renderSensors writes the metrics of an AMD GPU. Its partitions have no sensors.
func (r *renderer) renderSensors(d *deviceSnapshot) {
	if d.device.Vendor != device.AMD || !d.fresh {
		return
	}
	id := formatLabels(pairs(deviceLabels, r.deviceLabelValues(d)))
	for _, s := range sensors {
		if v, ok := d.reading.Get(s.field); ok {
			r.families.addOfDevice(s.metric, v*s.scale, id, s.labels...)
		}
	}
}

// SensorCoverage returns how many of the metrics of AMD GPUs a reading provides, and the
// names of those that it lacks.
func SensorCoverage(r device.Reading) (provided int, missing []string) {
	for _, s := range sensors {
		if _, ok := r.Get(s.field); ok {
			provided++
		} else {
			missing = append(missing, sensorName(s.field))
		}
	}
	return provided, missing
}

// sensorName returns the metric of a field of AMD GPUs, with the label sensor if there is one.
func sensorName(f device.Field) string {
	for _, s := range sensors {
		switch {
		case s.field == f && len(s.labels) > 0:
			return s.metric.name + "_" + s.labels[0]
		case s.field == f:
			return s.metric.name
		}
	}
	return ""
}
