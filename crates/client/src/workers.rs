//! Workers and queues: list, cordon, drain, configure, pause and resume.

use std::sync::Arc;

use model::WorkerId;
use model::api::{List, Queue, Worker};
use model::queue::QueueSettings;
use model::worker::{Admission, WorkerStatus};
use serde::Serialize;

use crate::error::Error;
use crate::http::{Client, Request};
use crate::page::{self, Items, Page};

/// Filter for workers. By default it selects all workers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkerFilter {
    /// Statuses; an empty list selects all.
    pub status: Vec<WorkerStatus>,
    /// Admissions; an empty list selects all.
    pub admission: Vec<Admission>,
    /// Labels, of which the worker must have all.
    pub labels: Vec<(String, String)>,
    /// Text that the name contains; letter case is ignored.
    pub text: Option<String>,
}

impl WorkerFilter {
    fn request(&self, page: &Page) -> Request {
        let statuses: Vec<_> = self.status.iter().map(|status| status.as_str()).collect();
        let admissions: Vec<_> = self.admission.iter().map(|admission| admission.as_str()).collect();
        let request = Request::get(["workers"])
            .query_opt("status", (!statuses.is_empty()).then(|| statuses.join(",")))
            .query_opt("admission", (!admissions.is_empty()).then(|| admissions.join(",")))
            .query_opt("text", self.text.as_ref())
            .page(page);
        self.labels.iter().fold(request, |r, (key, value)| r.query("label", format!("{key}={value}")))
    }
}

#[derive(Serialize)]
struct Pause<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'a str>,
}

fn worker(id: WorkerId) -> [String; 2] {
    ["workers".into(), id.to_string()]
}

impl Client {
    /// Returns one page of the workers that match the filter.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors).
    pub async fn workers_page(&self, filter: &WorkerFilter, page: &Page) -> Result<List<Worker>, Error> {
        // Each page costs the server a look at all workers.
        let page = Page { limit: page.limit.or(Some(1_000)), ..page.clone() };
        self.json(filter.request(&page)).await
    }

    /// Streams all workers that match the filter.
    pub fn workers(&self, filter: WorkerFilter) -> Items<Worker> {
        let (client, filter) = (self.clone(), Arc::new(filter));
        page::all(move |page| {
            let (client, filter) = (client.clone(), filter.clone());
            async move { client.workers_page(&filter, &page).await }
        })
    }

    /// Returns a worker.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `worker_not_found`.
    pub async fn worker(&self, id: WorkerId) -> Result<Worker, Error> {
        self.json(Request::get(worker(id))).await
    }

    /// Cordons a worker: it gets no new executions; running executions continue.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `worker_not_found`.
    pub async fn cordon(&self, id: WorkerId) -> Result<Worker, Error> {
        self.admit(id, "cordon").await
    }

    /// Uncordons a worker: it gets new executions again. Also undoes a drain.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `worker_not_found`.
    pub async fn uncordon(&self, id: WorkerId) -> Result<Worker, Error> {
        self.admit(id, "uncordon").await
    }

    /// Drains a worker: it gets no new executions, and running executions are moved to other workers.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `worker_not_found`.
    pub async fn drain(&self, id: WorkerId) -> Result<Worker, Error> {
        self.admit(id, "drain").await
    }

    async fn admit(&self, id: WorkerId, verb: &str) -> Result<Worker, Error> {
        self.json(Request::post(["workers", &id.to_string(), verb]).repeatable()).await
    }

    /// Removes a lost worker that will not come back.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `worker_not_found` and `worker_connected`.
    pub async fn remove_worker(&self, id: WorkerId) -> Result<(), Error> {
        self.send_ignoring_body(Request::delete(worker(id))).await
    }

    /// Returns one page of queues.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors).
    pub async fn queues_page(&self, page: &Page) -> Result<List<Queue>, Error> {
        self.json(Request::get(["queues"]).page(page)).await
    }

    /// Streams all queues.
    pub fn queues(&self) -> Items<Queue> {
        let client = self.clone();
        page::all(move |page| {
            let client = client.clone();
            async move { client.queues_page(&page).await }
        })
    }

    /// Returns a queue.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `queue_not_found`.
    pub async fn queue(&self, name: &str) -> Result<Queue, Error> {
        self.json(Request::get(["queues", name])).await
    }

    /// Creates a queue, or replaces all of its settings.
    ///
    /// With `version`, the request fails unless the stored queue has this version; `Some(0)` requires that it has no
    /// settings.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `invalid_spec` and `version_mismatch`.
    pub async fn set_queue(
        &self,
        name: &str,
        settings: &QueueSettings,
        version: Option<u64>,
    ) -> Result<Queue, Error> {
        let request = Request::put(["queues", name]).json(settings);
        self.json(match version {
            Some(0) => request.header("if-none-match", "*").once(),
            version => request.if_match(version),
        })
        .await
    }

    /// Deletes the settings of a queue. Fails while the queue has waiting or running jobs.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `queue_not_found` and `queue_in_use`.
    pub async fn delete_queue(&self, name: &str) -> Result<(), Error> {
        self.send_ignoring_body(Request::delete(["queues", name])).await
    }

    /// Pauses a queue: none of its waiting jobs starts until it is resumed. Running jobs continue.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors).
    pub async fn pause_queue(&self, name: &str, note: Option<&str>) -> Result<Queue, Error> {
        self.json(Request::post(["queues", name, "pause"]).json(&Pause { note }).repeatable()).await
    }

    /// Resumes a paused queue.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors).
    pub async fn resume_queue(&self, name: &str) -> Result<Queue, Error> {
        self.json(Request::post(["queues", name, "resume"]).repeatable()).await
    }
}
