//! `belfry service create`: builds a service from options.

use model::spec::{HealthCheck, HealthChecks, PriorityClass, RetryPolicy, Run};
use model::{JobSpec, ServiceSpec};

use super::super::submit::patched;
use super::super::{Context, Namespace};
use super::rollout;
use crate::args::service::CreateArgs;
use crate::args::spec::Patch;
use crate::failure::{Exit, Failure};
use crate::output::document;

pub(super) async fn run(context: &Context, args: CreateArgs) -> Result<(), Failure> {
    if !args.process.is_some() {
        return Err(Failure::usage("no command given")
            .help(format!("add a command after `--`: `belfry service create {} -- ./web`", args.service)));
    }
    let (client, namespace) = context.connect()?;
    let spec = spec(&args, &namespace)?;
    if args.dry_run {
        let checked = client.put_service_dry_run(&spec).await?;
        return context.out.data(document(&context.out.look, "service", &checked)?);
    }
    let created = client.put_service(&spec, Some(0)).await.map_err(|error| match error.code() {
        Some("version_mismatch") => Failure::message(
            Exit::Failed,
            format!("service `{}` already exists", spec.name),
        )
        .help(
            "run `belfry service apply -f FILE` to change it, `belfry service scale` to change the number of \
                 replicas, or choose another name",
        ),
        _ => error.into(),
    })?;
    context.out.row(&created)?;
    let (id, revision) = (created.id.into(), created.rollout.revision);
    rollout::wait_if_requested(context, &client, &id, revision, &args.waiting).await
}

fn spec(args: &CreateArgs, namespace: &Namespace) -> Result<ServiceSpec, Failure> {
    let mut patch = Patch::default();
    args.spec.patch(&mut patch)?;
    args.process.patch(&mut patch, Run::PROCESS)?;
    let mut job = patched(&JobSpec::command(Vec::<String>::new()), &patch.into_value())?;
    // The service controls restarts and the priority class; all other fields of the retry policy stay, so that the
    // server rejects them with their path.
    let restart_backoff = std::mem::replace(&mut job.retry.backoff, RetryPolicy::default().backoff);
    job.priority_class = PriorityClass::default();
    namespace.one()?.clone_into(&mut job.namespace);
    job.ports.clone_from(&args.ports);
    job.health = readiness(args)
        .map(|check| Box::new(HealthChecks { readiness: Some(check), ..HealthChecks::default() }));
    let mut spec = ServiceSpec {
        name: args.service.clone(),
        namespace: job.namespace.clone(),
        owner: job.owner.clone(),
        labels: job.labels.clone(),
        description: args.description.clone(),
        replicas: args.replicas,
        per_worker: args.per_worker,
        scaling: None,
        priority_class: args.spec.priority_class.unwrap_or(PriorityClass::High),
        restart_backoff,
        min_healthy: args.min_healthy.unwrap_or(model::Duration::from_secs(10)),
        update: args.update_policy(),
        job: Box::new(job),
    };
    spec.fill();
    Ok(spec)
}

fn readiness(args: &CreateArgs) -> Option<HealthCheck> {
    let mut check =
        HealthCheck { http: args.http_check.clone(), tcp: args.tcp_check.clone(), ..HealthCheck::new() };
    check.interval = args.check_interval.unwrap_or(check.interval);
    (check.http.is_some() || check.tcp.is_some()).then_some(check)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::service::ServiceCommand;
    use crate::args::{Cli, Command};

    fn build(line: &[&str]) -> Result<ServiceSpec, String> {
        let line = ["belfry", "service", "create"].iter().chain(line);
        let cli = Cli::try_parse_from(line).map_err(|e| e.to_string())?;
        let Command::Service(command) = cli.command else { panic!("not a service") };
        let ServiceCommand::Create(args) = *command else { panic!("not a creation") };
        spec(&args, &Namespace { name: "pay".into(), by_flag: false }).map_err(|f| f.render(false))
    }

    fn is_valid(spec: &ServiceSpec) -> Result<(), String> {
        model::validate::service(spec, model::Timestamp::default()).map_err(|invalid| invalid.to_string())
    }

    #[test]
    fn a_service_is_built_from_options() {
        #[rustfmt::skip]
        let spec = build(&[
            "web", "--replicas", "3", "--port", "http", "--port", "admin=9090", "--http-check", "http/healthz",
            "--check-interval", "5s", "--min-healthy", "30s", "--max-surge", "0", "--max-unavailable", "2",
            "--canaries", "1", "--auto-promote", "--progress-deadline", "5m", "--no-auto-rollback",
            "--description", "the shop", "--owner", "ann", "-l", "team=pay", "--queue", "web", "--cpu", "1",
            "--memory", "512MiB", "-e", "LEVEL=info", "--grace", "30s", "--backoff", "5s",
            "--priority-class", "normal", "--", "./web", "--port", "x",
        ])
        .unwrap();
        is_valid(&spec).unwrap();
        insta::assert_snapshot!("every_service_option", crate::output::yaml(&spec).unwrap());
    }

    /// The defaults of the command line are those of the spec.
    #[test]
    fn a_service_without_options_has_the_defaults_of_the_spec() {
        let built = build(&["web", "--", "./web"]).unwrap();
        is_valid(&built).unwrap();
        let minimal = serde_json::json!({
            "name": "web", "namespace": "pay", "job": {"run": {"process": {"command": ["./web"]}}},
        });
        let mut minimal: ServiceSpec = serde_json::from_value(minimal).unwrap();
        minimal.fill();
        assert_eq!(built, minimal);
    }

    /// The options are hidden, and the server names the field and the reason.
    #[test]
    fn an_option_that_a_service_cannot_have_is_rejected_with_its_field() {
        for (option, field) in
            [("--timeout=1h", "job.timeout"), ("--retries=3", "job.retry"), ("--store=a=b", "job.outputs")]
        {
            let spec = build(&["web", option, "--", "./web"]).unwrap();
            let told = is_valid(&spec).unwrap_err();
            assert!(told.contains(field), "{option}: {told}");
        }
    }

    #[test]
    fn a_readiness_check_is_either_http_or_tcp() {
        let check = |options: &[&str]| build(&[&["web"], options, &["--", "./web"]].concat());
        let spec = check(&["--port", "db", "--tcp-check", "db"]).unwrap();
        is_valid(&spec).unwrap();
        assert!(check(&["--http-check", "80", "--tcp-check", "80"]).is_err());
        assert!(check(&["--check-interval", "5s"]).is_err());
    }
}
