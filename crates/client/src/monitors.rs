//! Monitors of jobs that Belfry does not run, and their pings.

use model::alert::MonitorSpec;
use model::api::{Monitor, Monitors, NewPing};

use crate::error::Error;
use crate::http::{Client, Request};

impl Client {
    /// Returns all monitors of a namespace, or of all, each with its newest ping.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors).
    pub async fn monitors(&self, namespace: Option<&str>) -> Result<Vec<Monitor>, Error> {
        let list: Monitors = self.json(Request::get(["monitors"]).query_opt("namespace", namespace)).await?;
        Ok(list.items)
    }

    /// Returns a monitor with its newest pings, and with its ping URL if the caller may ping it.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `monitor_not_found`.
    pub async fn monitor(&self, namespace: &str, name: &str) -> Result<Monitor, Error> {
        self.json(Request::get(["monitors", name]).query("namespace", namespace)).await
    }

    /// Creates a monitor, or replaces it.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `invalid_spec` and `alert_limit`.
    pub async fn put_monitor(&self, spec: &MonitorSpec) -> Result<Monitor, Error> {
        let request = Request::put(["monitors", &spec.name]).query("namespace", &spec.namespace);
        self.json(request.json(spec)).await
    }

    /// Validates a monitor without storing it.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `invalid_spec`.
    pub async fn put_monitor_dry_run(&self, spec: &MonitorSpec) -> Result<MonitorSpec, Error> {
        let request = Request::put(["monitors", &spec.name]).query("namespace", &spec.namespace);
        self.json(request.query("dry_run", true).json(spec)).await
    }

    /// Pings a monitor. Returns when the ping is durable.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `monitor_not_found`.
    pub async fn ping_monitor(&self, namespace: &str, name: &str, ping: &NewPing) -> Result<(), Error> {
        let request = Request::post(["monitors", name, "ping"]).query("namespace", namespace);
        self.send_ignoring_body(request.json(ping).repeatable()).await
    }

    /// Deletes a monitor.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `monitor_not_found`.
    pub async fn delete_monitor(&self, namespace: &str, name: &str) -> Result<(), Error> {
        self.send_ignoring_body(Request::delete(["monitors", name]).query("namespace", namespace)).await
    }
}
