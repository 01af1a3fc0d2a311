//! Workflows: apply, find, plan and start.

use std::sync::Arc;

use model::api::{
    AppliedWorkflows, ApplyWorkflows, List, RunPlan, StartDefinition, StartRun, Workflow, WorkflowRun,
};
use model::{WorkflowId, WorkflowSpec};

use crate::error::Error;
use crate::http::{Client, Request};
use crate::jobs::random_key;
use crate::page::{self, Items, Page};

/// A workflow by its id, or by its name in a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkflowRef {
    /// Its id or its name.
    pub name: String,
    /// Where the name is looked for; the server's default where absent.
    pub namespace: Option<String>,
}

impl From<WorkflowId> for WorkflowRef {
    fn from(id: WorkflowId) -> Self {
        Self { name: id.to_string(), namespace: None }
    }
}

impl WorkflowRef {
    fn get(&self) -> Request {
        self.scoped(Request::get(["workflows", &self.name]))
    }

    fn post(&self, verb: &str) -> Request {
        self.scoped(Request::post(["workflows", &self.name, verb]))
    }

    fn scoped(&self, request: Request) -> Request {
        // An id says its namespace already.
        let by_name = self.name.parse::<WorkflowId>().is_err();
        request.query_opt("namespace", self.namespace.as_ref().filter(|_| by_name))
    }
}

/// Which workflows; the default is all of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkflowFilter {
    /// Of this owner.
    pub owner: Option<String>,
    /// Of this namespace.
    pub namespace: Option<String>,
    /// With this text in the name.
    pub text: Option<String>,
    /// With all of these labels.
    pub labels: Vec<(String, String)>,
    /// Tells the newest runs of each, so many at most.
    pub runs: Option<usize>,
}

impl WorkflowFilter {
    fn request(&self, page: &Page) -> Request {
        let request = Request::get(["workflows"])
            .query_opt("owner", self.owner.as_ref())
            .query_opt("namespace", self.namespace.as_ref())
            .query_opt("text", self.text.as_ref())
            .query_opt("runs", self.runs)
            .page(page);
        self.labels.iter().fold(request, |r, (key, value)| r.query("label", format!("{key}={value}")))
    }
}

impl Client {
    /// Creates a workflow or gives it a new spec; nothing changes if it has this one.
    ///
    /// With `version`, only if it is still that one; 0 stands for a workflow that does not exist.
    ///
    /// # Errors
    /// As every request.
    pub async fn put_workflow(&self, spec: &WorkflowSpec, version: Option<u64>) -> Result<Workflow, Error> {
        let request = put(spec);
        self.json(match version {
            Some(0) => request.header("if-none-match", "*").once(),
            version => request.if_match(version),
        })
        .await
    }

    /// The workflow as it would be, with every default; nothing is stored.
    ///
    /// # Errors
    /// As every request.
    pub async fn put_workflow_dry_run(&self, spec: &WorkflowSpec) -> Result<WorkflowSpec, Error> {
        self.json(put(spec).query("dry_run", true)).await
    }

    /// Creates workflows or gives them new specs, all or none; they may call each other.
    ///
    /// # Errors
    /// As every request.
    pub async fn apply_workflows(
        &self,
        workflows: Vec<WorkflowSpec>,
        dry_run: bool,
    ) -> Result<AppliedWorkflows, Error> {
        let request = Request::post(["workflows", "apply"]).json(&ApplyWorkflows { workflows }).repeatable();
        self.json(request.query_opt("dry_run", dry_run.then_some(true))).await
    }

    /// One workflow, with its spec: the newest, or that of a generation.
    ///
    /// # Errors
    /// As every request.
    pub async fn workflow(&self, workflow: &WorkflowRef, generation: Option<u64>) -> Result<Workflow, Error> {
        self.json(workflow.get().query_opt("generation", generation)).await
    }

    /// One page of workflows, newest first, without their specs.
    ///
    /// # Errors
    /// As every request.
    pub async fn workflows_page(
        &self,
        filter: &WorkflowFilter,
        page: &Page,
    ) -> Result<List<Workflow>, Error> {
        self.json(filter.request(page)).await
    }

    /// All workflows that the filter lets through, newest first.
    pub fn workflows(&self, filter: WorkflowFilter) -> Items<Workflow> {
        let (client, filter) = (self.clone(), Arc::new(filter));
        page::all(move |page| {
            let (client, filter) = (client.clone(), filter.clone());
            async move { client.workflows_page(&filter, &page).await }
        })
    }

    /// Forgets a workflow; its runs go on.
    ///
    /// # Errors
    /// As every request.
    pub async fn delete_workflow(&self, workflow: &WorkflowRef, version: Option<u64>) -> Result<(), Error> {
        let request = workflow.scoped(Request::delete(["workflows", &workflow.name]));
        self.done(request.if_match(version)).await
    }

    /// Starts a run. Sent with a random key: however often it has to be tried, it starts one.
    ///
    /// # Errors
    /// As every request.
    pub async fn start_run(&self, workflow: &WorkflowRef, how: &StartRun) -> Result<WorkflowRun, Error> {
        self.start_run_once(workflow, how, &random_key()).await
    }

    /// The same with a key of the caller's own: a second start with it answers with the first one's run.
    ///
    /// # Errors
    /// As every request.
    pub async fn start_run_once(
        &self,
        workflow: &WorkflowRef,
        how: &StartRun,
        key: &str,
    ) -> Result<WorkflowRun, Error> {
        let request = workflow.post("start").json(how).header("idempotency-key", &format!("\"{key}\""));
        self.json(request.repeatable()).await
    }

    /// Starts a run of a definition that is kept with the run alone. However often it has to be tried, it
    /// starts one; with a `key` of the caller's own, a second start answers with the first one's run.
    ///
    /// # Errors
    /// As every request.
    pub async fn start_definition(
        &self,
        how: &StartDefinition,
        key: Option<&str>,
    ) -> Result<WorkflowRun, Error> {
        let key = key.map_or_else(random_key, str::to_owned);
        let request = Request::post(["runs"]).json(how).header("idempotency-key", &format!("\"{key}\""));
        self.json(request.repeatable()).await
    }

    /// What would be started: the definition with every default.
    ///
    /// # Errors
    /// As every request.
    pub async fn start_definition_dry_run(&self, how: &StartDefinition) -> Result<WorkflowSpec, Error> {
        self.json(Request::post(["runs"]).query("dry_run", true).json(how).repeatable()).await
    }

    /// What a run would do; nothing is stored.
    ///
    /// # Errors
    /// As every request.
    pub async fn plan_run(&self, workflow: &WorkflowRef, how: &StartRun) -> Result<RunPlan, Error> {
        self.json(workflow.post("plan").json(how).repeatable()).await
    }
}

fn put(spec: &WorkflowSpec) -> Request {
    Request::put(["workflows", &spec.name]).query("namespace", &spec.namespace).json(spec)
}
