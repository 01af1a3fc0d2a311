//! Workers and queues.

use model::WorkerId;
use model::api::{List, Queue, Worker};
use model::queue::QueueSettings;
use serde::Serialize;

use crate::error::Error;
use crate::http::{Client, Request};
use crate::page::{self, Items, Page};

#[derive(Serialize)]
struct Pause<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'a str>,
}

fn worker(id: WorkerId) -> [String; 2] {
    ["workers".into(), id.to_string()]
}

impl Client {
    /// One page of workers.
    ///
    /// # Errors
    /// As every request.
    pub async fn workers_page(&self, page: &Page) -> Result<List<Worker>, Error> {
        self.json(Request::get(["workers"]).page(page)).await
    }

    /// All workers.
    pub fn workers(&self) -> Items<Worker> {
        let client = self.clone();
        page::all(move |page| {
            let client = client.clone();
            async move { client.workers_page(&page).await }
        })
    }

    /// One worker.
    ///
    /// # Errors
    /// As every request.
    pub async fn worker(&self, id: WorkerId) -> Result<Worker, Error> {
        self.json(Request::get(worker(id))).await
    }

    /// Lets no new work onto a worker; what runs there may end.
    ///
    /// # Errors
    /// As every request.
    pub async fn cordon(&self, id: WorkerId) -> Result<Worker, Error> {
        self.admit(id, "cordon").await
    }

    /// Lets work onto a worker again.
    ///
    /// # Errors
    /// As every request.
    pub async fn uncordon(&self, id: WorkerId) -> Result<Worker, Error> {
        self.admit(id, "uncordon").await
    }

    /// Lets no new work onto a worker, and moves what runs there elsewhere.
    ///
    /// # Errors
    /// As every request.
    pub async fn drain(&self, id: WorkerId) -> Result<Worker, Error> {
        self.admit(id, "drain").await
    }

    async fn admit(&self, id: WorkerId, verb: &str) -> Result<Worker, Error> {
        self.json(Request::post(["workers", &id.to_string(), verb]).repeatable()).await
    }

    /// Forgets a worker that will not come back; refused while it is connected.
    ///
    /// # Errors
    /// As every request.
    pub async fn remove_worker(&self, id: WorkerId) -> Result<(), Error> {
        self.done(Request::delete(worker(id))).await
    }

    /// One page of queues.
    ///
    /// # Errors
    /// As every request.
    pub async fn queues_page(&self, page: &Page) -> Result<List<Queue>, Error> {
        self.json(Request::get(["queues"]).page(page)).await
    }

    /// All queues.
    pub fn queues(&self) -> Items<Queue> {
        let client = self.clone();
        page::all(move |page| {
            let client = client.clone();
            async move { client.queues_page(&page).await }
        })
    }

    /// One queue.
    ///
    /// # Errors
    /// As every request.
    pub async fn queue(&self, name: &str) -> Result<Queue, Error> {
        self.json(Request::get(["queues", name])).await
    }

    /// Sets a queue up, replacing all of its settings.
    ///
    /// With `version`, only if it is still that one; 0 stands for a queue that nobody set up.
    ///
    /// # Errors
    /// As every request.
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

    /// Deletes the settings of a queue; refused while jobs wait or run in it.
    ///
    /// # Errors
    /// As every request.
    pub async fn delete_queue(&self, name: &str) -> Result<(), Error> {
        self.done(Request::delete(["queues", name])).await
    }

    /// Lets nothing of a queue start, until it is resumed.
    ///
    /// # Errors
    /// As every request.
    pub async fn pause_queue(&self, name: &str, note: Option<&str>) -> Result<Queue, Error> {
        self.json(Request::post(["queues", name, "pause"]).json(&Pause { note }).repeatable()).await
    }

    /// Lets the jobs of a queue start again.
    ///
    /// # Errors
    /// As every request.
    pub async fn resume_queue(&self, name: &str) -> Result<Queue, Error> {
        self.json(Request::post(["queues", name, "resume"]).repeatable()).await
    }
}
