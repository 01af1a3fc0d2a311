//! Reads the metrics that scale services, on the leader.
//!
//! A query goes to the HTTP API of Prometheus, which other systems offer too: `GET /api/v1/query` with a result that is a
//! scalar, or a vector with one sample. Services with the same query share one request.
//!
//! CPU and memory are those that workers have measured; see [`total`].
//!
//! # Cost
//! One request for each different query every 15 seconds, at most [`CONCURRENT_MAX`] at a time. Two reads of the store for
//! each service that is scaled by CPU or memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use engine::Input;
use engine::input::MetricReading;
use futures::StreamExt as _;
use model::ServiceId;
use model::api::UsageSample;
use model::error_chain::Chain;
use model::record::ExecutionRecord;
use model::service::ScalingMetric;
use model::spec::HealthStatus;
use serde::Deserialize;
use store::StoreError;

use crate::endpoints;
use crate::networks::{self, Networks};
use crate::services::Services;

const INTERVAL: Duration = Duration::from_secs(15);
/// Interval at which it looks for new queries.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(10);
/// Most concurrent requests.
const CONCURRENT_MAX: usize = 16;
/// Most bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Where metrics come from.
enum Source {
    /// Other systems.
    Queries(Arc<Reader>),
    /// The measurements of workers.
    Measurements,
}

impl Source {
    fn has(&self, metric: &ScalingMetric) -> bool {
        match self {
            Self::Queries(_) => matches!(metric, ScalingMetric::Query(_)),
            Self::Measurements => metric.needs_replicas(),
        }
    }
}

/// Reads metrics until the future is dropped. Measurements do not wait for slow servers of metrics.
pub(crate) async fn run(services: Services) {
    let networks = Arc::new(services.config.private_networks.clone());
    let http = networks::guarded_client(&networks, TIMEOUT, TIMEOUT);
    let queries = Source::Queries(Arc::new(Reader { http, networks }));
    tokio::join!(read_repeatedly(services.clone(), queries), read_repeatedly(services, Source::Measurements));
}

async fn read_repeatedly(services: Services, source: Source) {
    let mut rounds = tokio::time::interval(LOOK_INTERVAL);
    rounds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut last_read: Option<(tokio::time::Instant, Vec<(ServiceId, ScalingMetric)>)> = None;
    loop {
        rounds.tick().await;
        let view = services.node.view();
        let metrics: Vec<_> =
            view.metrics_to_read.iter().filter(|(_, metric)| source.has(metric)).cloned().collect();
        if metrics.is_empty() || services.node.check_leading().is_err() {
            last_read = None;
            continue;
        }
        // A new service need not wait for its first values.
        let is_due =
            |(at, read): &(tokio::time::Instant, Vec<_>)| at.elapsed() >= INTERVAL || *read != metrics;
        if !last_read.as_ref().is_none_or(is_due) {
            continue;
        }
        last_read = Some((tokio::time::Instant::now(), metrics.clone()));
        let readings = match &source {
            Source::Queries(reader) => Box::pin(read_queries(reader, &metrics)).await,
            Source::Measurements => Box::pin(read_measurements(&services, &metrics)).await,
        };
        // A node that stops needs no readings.
        let _stopped = services.node.report(vec![Input::Metrics { readings }]).await;
    }
}

/// Reads the metrics of other systems.
async fn read_queries(reader: &Arc<Reader>, metrics: &[(ServiceId, ScalingMetric)]) -> Vec<MetricReading> {
    let mut users: BTreeMap<(String, String), Vec<(ServiceId, ScalingMetric)>> = BTreeMap::new();
    for (service, metric) in metrics {
        if let ScalingMetric::Query(query) = metric {
            let same = users.entry((query.url.clone(), query.query.clone())).or_default();
            same.push((*service, metric.clone()));
        }
    }
    let reads = users.into_iter().map(|((url, query), users)| {
        let reader = Arc::clone(reader);
        async move { (users, reader.read(&url, &query).await.map_err(Arc::<str>::from)) }
    });
    let read: Vec<_> = futures::stream::iter(reads).buffer_unordered(CONCURRENT_MAX).collect().await;
    let readings = read.into_iter().flat_map(|(users, value)| {
        users.into_iter().map(move |(service, metric)| MetricReading {
            service,
            metric,
            value: value.clone(),
        })
    });
    readings.collect()
}

/// Reads what the replicas of services use.
async fn read_measurements(
    services: &Services,
    metrics: &[(ServiceId, ScalingMetric)],
) -> Vec<MetricReading> {
    let mut readings = Vec::new();
    let mut last: Option<(ServiceId, Replicas)> = None;
    for (service, metric) in metrics.iter().filter(|(_, metric)| metric.needs_replicas()) {
        // The metrics of a service follow each other.
        if last.as_ref().is_none_or(|(id, _)| id != service) {
            match replicas(services, *service).await {
                Ok(Some(found)) => last = Some((*service, found)),
                Ok(None) => continue,
                Err(error) => {
                    tracing::warn!(service_id = %service, error = %Chain(&error), "cannot read the replicas of a service");
                    continue;
                }
            }
        }
        let Some((_, Replicas { desired, samples })) = &last else { continue };
        let value = total(metric, *desired, samples).map_err(Arc::<str>::from);
        readings.push(MetricReading { service: *service, metric: metric.clone(), value });
    }
    readings
}

/// What the replicas of a service use.
struct Replicas {
    desired: u32,
    /// Those of the healthy replicas that are not being stopped and were measured.
    samples: Vec<UsageSample>,
}

async fn replicas(services: &Services, service: ServiceId) -> Result<Option<Replicas>, StoreError> {
    let Some(row) = services.node.store().service(service).await? else { return Ok(None) };
    let rows = services.node.store().replicas(service).await?;
    let is_healthy = |record: &&ExecutionRecord| {
        record.health.as_ref().is_none_or(|health| health.status == HealthStatus::Healthy)
    };
    let kept = rows.iter().filter(|row| row.state.cancel_requested_at.is_none());
    let healthy = kept.filter_map(endpoints::running).filter(is_healthy);
    let samples = healthy.filter_map(|record| services.usage.newest(record.worker, record.id)).collect();
    Ok(Some(Replicas { desired: row.state.replicas, samples }))
}

/// Returns what the `desired` replicas of a service use. `samples` are those of the healthy replicas that were measured.
///
/// Other replicas count as in the Horizontal Pod Autoscaler: with nothing if the measured ones use more than `per_replica`, and
/// with `per_replica` otherwise. So they never make a change larger: new replicas that still start ask for no further ones.
/// During an update, more replicas than desired may run: then the mean counts.
fn total(metric: &ScalingMetric, desired: u32, samples: &[UsageSample]) -> Result<f64, String> {
    let (per_replica, values): (f64, Vec<f64>) = match metric {
        ScalingMetric::Memory(memory) => {
            (memory.per_replica.0 as f64, samples.iter().map(|sample| sample.memory.0 as f64).collect())
        }
        ScalingMetric::Cpu(cpu) => {
            let cores = |millis: u32| f64::from(millis) / 1_000.0;
            (cores(cpu.per_replica.0), samples.iter().map(|sample| cores(sample.cpu.0)).collect())
        }
        ScalingMetric::Queue(_) | ScalingMetric::Query(_) => (0.0, Vec::new()),
    };
    let desired = f64::from(desired);
    if desired == 0.0 {
        return Ok(0.0);
    }
    if values.is_empty() {
        return Err("no replica is healthy and measured".to_owned());
    }
    let measured = values.len() as f64;
    let mean = values.iter().sum::<f64>() / measured;
    let sum = mean * measured.min(desired);
    let unmeasured = (desired - measured).max(0.0);
    Ok(if mean > per_replica { sum.max(per_replica * desired) } else { sum + unmeasured * per_replica })
}

struct Reader {
    http: reqwest::Client,
    networks: Arc<Networks>,
}

impl Reader {
    /// Returns the result of a query, or why there is none, in a text without a time or another detail that changes.
    async fn read(&self, url: &str, query: &str) -> Result<f64, String> {
        let url = format!("{}/api/v1/query", url.trim_end_matches('/'));
        let mut url = reqwest::Url::parse(&url).map_err(|error| format!("the URL is invalid: {error}"))?;
        url.query_pairs_mut().append_pair("query", query);
        self.networks.check_url(&url).map_err(|forbidden| forbidden.to_string())?;
        let sent = self.http.get(url).send().await;
        let mut answer = sent.map_err(|error| format!("Prometheus does not answer: {}", reason(error)))?;
        let status = answer.status();
        let mut body = Vec::new();
        while let Some(chunk) =
            answer.chunk().await.map_err(|error| format!("the answer ended early: {}", reason(error)))?
        {
            body.extend_from_slice(&chunk);
            if body.len() > ANSWER_BYTES_MAX {
                return Err("the answer is too long: the query must return one number".to_owned());
            }
        }
        number(&body)
            .map_err(|problem| if status.is_success() { problem } else { format!("{status}: {problem}") })
    }
}

/// Returns the cause of an error without the URL, which may be secret.
fn reason(error: reqwest::Error) -> String {
    Chain(&error.without_url()).to_string()
}

/// Answer of the HTTP API of Prometheus.
#[derive(Deserialize)]
struct Answer {
    data: Option<Data>,
    error: Option<String>,
}

#[derive(Deserialize)]
struct Data {
    #[serde(rename = "resultType")]
    kind: String,
    result: serde_json::Value,
}

#[derive(Deserialize)]
struct Element {
    value: Sample,
}

/// A time and a number as text.
#[derive(Deserialize)]
struct Sample(#[allow(dead_code, reason = "a part of the format")] f64, String);

/// Returns the number in an answer.
fn number(body: &[u8]) -> Result<f64, String> {
    let foreign = |_| "the answer is not in the format of Prometheus".to_owned();
    let answer: Answer = serde_json::from_slice(body).map_err(foreign)?;
    if let Some(error) = answer.error {
        return Err(format!("the query failed: {}", error.chars().take(200).collect::<String>()));
    }
    let sample = match answer.data {
        Some(Data { kind, result }) if kind == "scalar" => serde_json::from_value(result).map_err(foreign)?,
        Some(Data { kind, result }) if kind == "vector" => {
            let mut elements: Vec<Element> = serde_json::from_value(result).map_err(foreign)?;
            let count = elements.len();
            match elements.pop() {
                Some(element) if count == 1 => element.value,
                Some(_) => {
                    return Err(format!(
                        "the query has {count} results: aggregate them, for example with `sum`"
                    ));
                }
                None => return Err("the query has no result".to_owned()),
            }
        }
        _ => return Err("the query must return one current number, not a range".to_owned()),
    };
    let value: f64 = sample.1.parse().map_err(|_| "the result is not a number".to_owned())?;
    if value.is_finite() { Ok(value) } else { Err("the result is not a finite number".to_owned()) }
}

#[cfg(test)]
mod tests {
    use model::service::{CpuMetric, MemoryMetric};
    use model::{Bytes, Millicores, Timestamp};

    use super::*;

    fn samples(cpu: &[u32]) -> Vec<UsageSample> {
        let sample = |cpu: &u32| UsageSample {
            at: Timestamp::from_micros(0),
            cpu: Millicores(*cpu),
            memory: Bytes(100),
            read_bytes_per_second: 0,
            written_bytes_per_second: 0,
            processes: 1,
        };
        cpu.iter().map(sample).collect()
    }

    #[test]
    fn replicas_without_a_measurement_make_no_change_larger() {
        let cpu = ScalingMetric::Cpu(CpuMetric { per_replica: Millicores(500) });
        assert_eq!(total(&cpu, 2, &samples(&[1_000, 1_000])), Ok(2.0), "four are needed");
        assert_eq!(total(&cpu, 4, &samples(&[1_000, 1_000])), Ok(2.0), "the two new ones still start");
        assert_eq!(total(&cpu, 8, &samples(&[1_000, 1_000])), Ok(4.0), "as many as there are");
        assert_eq!(total(&cpu, 4, &samples(&[100, 100])), Ok(1.2), "the others count with their share");
        assert_eq!(total(&cpu, 3, &[]), Err("no replica is healthy and measured".to_owned()));
        assert_eq!(total(&cpu, 0, &[]), Ok(0.0), "there is nothing to measure");
        let memory = ScalingMetric::Memory(MemoryMetric { per_replica: Bytes(50) });
        assert_eq!(total(&memory, 2, &samples(&[0, 0])), Ok(200.0));
    }

    #[test]
    fn additional_replicas_of_an_update_ask_for_no_further_ones() {
        let cpu = ScalingMetric::Cpu(CpuMetric { per_replica: Millicores(500) });
        assert_eq!(total(&cpu, 4, &samples(&[520; 4])), Ok(2.08), "within the tolerance");
        assert_eq!(total(&cpu, 4, &samples(&[520; 5])), Ok(2.08));
        assert_eq!(total(&cpu, 4, &samples(&[520; 8])), Ok(2.08));
    }

    #[test]
    fn a_scalar_or_a_single_sample_is_a_number() {
        let scalar =
            br#"{"status":"success","data":{"resultType":"scalar","result":[1435781451.781,"12.5"]}}"#;
        assert_eq!(number(scalar), Ok(12.5));
        let vector = br#"{"status":"success","data":{"resultType":"vector","result":[
            {"metric":{"__name__":"up"},"value":[1435781451.781,"3"]}]}}"#;
        assert_eq!(number(vector), Ok(3.0));
    }

    #[test]
    fn each_other_answer_has_a_reason() {
        let two = br#"{"data":{"resultType":"vector","result":[{"value":[1,"1"]},{"value":[1,"2"]}]}}"#;
        for (body, expected) in [
            (two.as_slice(), "the query has 2 results: aggregate them, for example with `sum`"),
            (br#"{"data":{"resultType":"vector","result":[]}}"#, "the query has no result"),
            (
                br#"{"data":{"resultType":"matrix","result":[{"values":[[1,"1"]]}]}}"#,
                "the query must return one current number, not a range",
            ),
            (br#"{"data":{"resultType":"scalar","result":[1,"NaN"]}}"#, "the result is not a finite number"),
            (
                br#"{"status":"error","errorType":"bad_data","error":"parse error"}"#,
                "the query failed: parse error",
            ),
            (b"<html>", "the answer is not in the format of Prometheus"),
        ] {
            assert_eq!(number(body), Err(expected.to_owned()), "{}", String::from_utf8_lossy(body));
        }
    }
}
