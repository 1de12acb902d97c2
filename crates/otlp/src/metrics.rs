//! Encodes metrics as an OTLP request. All values are cumulative since the process began.

use std::time::{SystemTime, UNIX_EPOCH};

use fanlight_telemetry::metrics::{BOUNDS, Counts, Family, Labels, Shape, Values};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, Sum, metric, number_data_point,
};
use opentelemetry_sdk::Resource;

use crate::export::{key_value, resource, scope, string};

/// The time that the values cover, in nanoseconds since the Unix epoch.
#[derive(Clone, Copy)]
struct Period {
    since: u64,
    until: u64,
}

/// A request with `families`, for the time since `since`.
pub(crate) fn request(
    from: &Resource,
    since: SystemTime,
    families: &[Family],
) -> ExportMetricsServiceRequest {
    let period = Period {
        since: nanos(since),
        until: nanos(SystemTime::now()),
    };
    let metrics = families
        .iter()
        .filter(|family| !family.points.is_empty())
        .map(|family| metric(family, period));
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(resource(from)),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(scope()),
                metrics: metrics.collect(),
                schema_url: String::new(),
            }],
            schema_url: String::new(),
        }],
    }
}

fn metric(family: &Family, period: Period) -> Metric {
    let aggregation_temporality = AggregationTemporality::Cumulative as i32;
    let numbers = || {
        family
            .points
            .iter()
            .filter_map(|(labels, values)| number(labels, values, period))
            .collect()
    };
    let data = match family.info.shape {
        Shape::Gauge => metric::Data::Gauge(Gauge {
            data_points: numbers(),
        }),
        Shape::Counter => metric::Data::Sum(Sum {
            data_points: numbers(),
            aggregation_temporality,
            is_monotonic: true,
        }),
        Shape::UpDownCounter => metric::Data::Sum(Sum {
            data_points: numbers(),
            aggregation_temporality,
            is_monotonic: false,
        }),
        Shape::Histogram => {
            let points = family
                .points
                .iter()
                .filter_map(|(labels, values)| match values {
                    Values::Histogram(counts) => Some(histogram(labels, counts, period)),
                    Values::Integer(_) => None,
                });
            metric::Data::Histogram(Histogram {
                data_points: points.collect(),
                aggregation_temporality,
            })
        }
    };
    Metric {
        name: family.info.name.to_owned(),
        description: family.info.help.to_owned(),
        unit: family.info.unit.to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}

fn number(labels: &Labels, values: &Values, period: Period) -> Option<NumberDataPoint> {
    let Values::Integer(value) = values else {
        return None;
    };
    Some(NumberDataPoint {
        attributes: attributes(labels),
        start_time_unix_nano: period.since,
        time_unix_nano: period.until,
        value: Some(number_data_point::Value::AsInt(*value)),
        ..NumberDataPoint::default()
    })
}

fn histogram(labels: &Labels, counts: &Counts, period: Period) -> HistogramDataPoint {
    HistogramDataPoint {
        attributes: attributes(labels),
        start_time_unix_nano: period.since,
        time_unix_nano: period.until,
        count: counts.buckets.iter().sum(),
        sum: Some(counts.sum_seconds),
        bucket_counts: counts.buckets.clone(),
        explicit_bounds: BOUNDS.to_vec(),
        ..HistogramDataPoint::default()
    }
}

fn attributes(labels: &Labels) -> Vec<KeyValue> {
    labels
        .iter()
        .map(|(key, value)| key_value(key, string(value)))
        .collect()
}

/// A time in nanoseconds since the Unix epoch.
pub(crate) fn nanos(time: SystemTime) -> u64 {
    u64::try_from(
        time.duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_nanos(),
    )
    .unwrap_or(u64::MAX)
}
