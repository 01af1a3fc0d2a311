//! Reads the metrics that scale services, on the leader.
//!
//! A query goes to the HTTP API of Prometheus, which other systems offer too: `GET /api/v1/query` with a result that is a
//! scalar, or a vector with one sample. Services with the same query share one request.
//!
//! # Cost
//! One request for each different query every 15 seconds, at most [`CONCURRENT_MAX`] at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use engine::Input;
use engine::input::MetricReading;
use futures::StreamExt as _;
use model::ServiceId;
use model::error_chain::Chain;
use model::service::QueryMetric;
use serde::Deserialize;

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

/// Reads metrics until the future is dropped.
pub(crate) async fn run(services: Services) {
    let networks = Arc::new(services.config.private_networks.clone());
    let http = networks::guarded_client(&networks, TIMEOUT, TIMEOUT);
    let reader = Arc::new(Reader { http, networks });
    let mut rounds = tokio::time::interval(LOOK_INTERVAL);
    rounds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut last_read: Option<(tokio::time::Instant, Vec<(ServiceId, QueryMetric)>)> = None;
    loop {
        rounds.tick().await;
        let view = services.node.view();
        if view.metric_queries.is_empty() || services.node.check_leading().is_err() {
            last_read = None;
            continue;
        }
        // A new service need not wait for its first values.
        let is_due = |(at, queries): &(tokio::time::Instant, Vec<_>)| {
            at.elapsed() >= INTERVAL || *queries != view.metric_queries
        };
        if !last_read.as_ref().is_none_or(is_due) {
            continue;
        }
        last_read = Some((tokio::time::Instant::now(), view.metric_queries.clone()));
        let mut users: BTreeMap<(String, String), Vec<(ServiceId, QueryMetric)>> = BTreeMap::new();
        for (service, query) in view.metric_queries.iter().cloned() {
            users.entry((query.url.clone(), query.query.clone())).or_default().push((service, query));
        }
        let reads = users.into_iter().map(|((url, query), users)| {
            let reader = Arc::clone(&reader);
            async move { (users, reader.read(&url, &query).await.map_err(Arc::<str>::from)) }
        });
        let read: Vec<_> = futures::stream::iter(reads).buffer_unordered(CONCURRENT_MAX).collect().await;
        let readings = read.into_iter().flat_map(|(users, value)| {
            users.into_iter().map(move |(service, query)| MetricReading {
                service,
                query,
                value: value.clone(),
            })
        });
        // A node that stops needs no readings.
        let _stopped = services.node.report(vec![Input::Metrics { readings: readings.collect() }]).await;
    }
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
    use super::*;

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
