//! `belfry submit`: builds jobs from options and files, and submits them.
//!
//! - [`run`]: submits the jobs, then waits for them or follows the log if requested.
//! - [`specs`]: builds the specs; [`patched`] is also used by `schedule create`.
//! - [`show`]: writes the ids of submitted jobs; also used by `job retry`.
//! - [`read_specs`]: parses a file.
//!
//! A job without a name gets the name of its command ([`job_name`]).
//!
//! A file contains one spec, a list of specs, an object with the key `jobs`, or several YAML documents. Flags are a
//! merge patch on top of each spec ([`patched`]). The namespace comes from `--namespace`, else from the file, else from
//! the settings. Options for several jobs (`--shards`, `--over`, `--on-all-workers`) are handled by `multiple`.

use std::path::Path;

use client::Client;
use model::api::SubmittedJob;
use model::spec::{Run, UpstreamJob};
use model::{JobSpec, Timestamp};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Context, Namespace, job_name, logs, multiple, wait};
use crate::args::job::SubmitArgs;
use crate::args::spec::{After, Patch, read_text};
use crate::failure::Failure;
use crate::output::text::short;
use crate::output::{Format, json, yaml};

pub(super) async fn run(context: &Context, args: SubmitArgs) -> Result<(), Failure> {
    if args.file.is_none() && !args.process.is_some() {
        return Err(Failure::usage("no command given")
            .help("add a command after `--`, or a file with `-f`: `belfry submit -- echo hello`"));
    }
    let has_separator = std::env::args_os().any(|argument| argument == "--");
    if let Some(option) = misplaced_option(&args.process.command).filter(|_| !has_separator) {
        context
            .out
            .warn(format!("`{option}` is an argument of the command, not an option of `belfry submit`"));
        context.out.help(format!(
            "put options first, and the command after `--`: `belfry submit {option} -- COMMAND`"
        ));
    }
    let (client, namespace) = context.connect()?;
    let mut specs = specs(&args, &namespace, jiff::Timestamp::now().into())?;
    let upstream = upstream(context, &client, &args)?;
    if !upstream.is_empty() {
        specs.iter_mut().for_each(|spec| spec.after.clone_from(&upstream));
    }
    let mut nowhere = Vec::new();
    let constraints = specs.first_mut().map_or(&mut nowhere, |spec| &mut spec.constraints);
    if let Some(each) = args.many.for_each(constraints)? {
        return multiple::submit(context, &client, &args, specs, each).await;
    }
    if args.dry_run {
        return dry_run(context, &client, &specs).await;
    }
    if args.follow && specs.len() > 1 {
        let message = format!("`--follow` requires a file with one job, but the file has {}", specs.len());
        return Err(Failure::usage(message).help("use `--wait` to wait for all jobs"));
    }
    let submitted = match specs.as_slice() {
        [one] => vec![client.submit(one).await?],
        all => client.submit_all(all).await?,
    };
    for job in submitted.iter().filter(|job| !job.created) {
        context.out.note(format!("job {} was already submitted with this idempotency key", job.id));
    }
    let jobs: Vec<_> = submitted.iter().map(|job| job.id).collect();
    if let Some(job) = jobs.last() {
        context.created(&client, *job);
    }
    match (args.follow, jobs.as_slice()) {
        (true, [job]) => {
            context.out.note(format!("submitted {job}"));
            logs::follow_until_ended(context, &client, *job, args.wait_timeout).await
        }
        _ if args.wait => {
            if context.out.look.format == Format::Table {
                show(context, &submitted)?;
            }
            wait::for_jobs(context, &client, &jobs, args.wait_timeout).await
        }
        _ => show(context, &submitted),
    }
}

/// Returns the upstream jobs of the option `--after`.
fn upstream(context: &Context, client: &Client, args: &SubmitArgs) -> Result<Vec<UpstreamJob>, Failure> {
    let resolve =
        |&After { job, condition }: &After| Ok(UpstreamJob { job: context.id(client, job)?, condition });
    args.after.iter().map(resolve).collect()
}

/// Returns the first argument of a command that is probably meant for `belfry submit`.
fn misplaced_option(command: &[String]) -> Option<&str> {
    let arguments = command.iter().skip(1).map(String::as_str);
    arguments.into_iter().find(|argument| ["--wait", "--follow", "--wait-timeout"].contains(argument))
}

/// Writes the submitted jobs. Tables contain only the ids: scripts use `job=$(belfry submit …)`.
pub(super) fn show(context: &Context, submitted: &[SubmittedJob]) -> Result<(), Failure> {
    match (context.out.look.format, submitted) {
        (Format::Table | Format::Name, all) => {
            context.out.data(all.iter().map(|job| format!("{}\n", job.id)).collect::<String>())
        }
        (Format::Json, [one]) => context.out.data(json(one)?),
        (Format::Yaml, [one]) => context.out.data(yaml(one)?),
        (_, all) => context.out.list(all, "jobs"),
    }
}

async fn dry_run(context: &Context, client: &Client, specs: &[JobSpec]) -> Result<(), Failure> {
    let many = specs.len() > 1;
    for spec in specs {
        let answer = client.submit_dry_run(spec).await?;
        let text = match context.out.look.format {
            Format::Json => json(&answer)?,
            // Through the type, whose field order is easier to read than that of the JSON object.
            _ => match serde_json::from_value::<JobSpec>(answer.clone()) {
                Ok(spec) => yaml(&spec)?,
                Err(_) => yaml(&answer)?,
            },
        };
        context.out.data(if many && context.out.look.format != Format::Json {
            format!("---\n{text}")
        } else {
            text
        })?;
    }
    Ok(())
}

/// Returns the specs of the file, or one spec with defaults, with the flags applied.
fn specs(args: &SubmitArgs, namespace: &Namespace, now: Timestamp) -> Result<Vec<JobSpec>, Failure> {
    let mut patch = Patch::default();
    args.due.patch(&mut patch, now)?;
    args.spec.patch(&mut patch)?;
    let read = match &args.file {
        Some(path) => read_file(path)?,
        None => vec![FileSpec::default()],
    };
    let runtime = read.first().map_or(Run::PROCESS, |file| file.spec.run.runtime());
    args.process.patch(&mut patch, runtime)?;
    let patch = patch.into_value();
    if patch.get("run").is_some() && read.iter().any(|file| file.spec.run.runtime() != runtime) {
        return Err(Failure::usage("the jobs in the file have different runtimes")
            .help("omit the options for the command, or submit the jobs from different files"));
    }
    if args.idempotency_key.is_some() && read.len() > 1 {
        let message =
            format!("`--idempotency-key` requires a file with one job, but the file has {}", read.len());
        return Err(Failure::usage(message).help("set `idempotency_key` in each job"));
    }
    read.into_iter()
        .map(|FileSpec { names_namespace, names_job, mut spec }| {
            if namespace.by_flag() || !names_namespace {
                namespace.one()?.clone_into(&mut spec.namespace);
            }
            if args.idempotency_key.is_some() {
                spec.idempotency_key.clone_from(&args.idempotency_key);
            }
            let mut spec = patched(&spec, &patch)?;
            if !names_job && args.spec.name.is_none() {
                spec.name = default_name(&spec, args).unwrap_or(spec.name);
            }
            Ok(spec)
        })
        .collect()
}

/// Returns the name of the command, in a form that is also valid for a run if the options start one.
fn default_name(spec: &JobSpec, args: &SubmitArgs) -> Option<String> {
    let name = job_name::of_run(&spec.run, args.process.script.as_deref())?;
    let is_reserved = args.many.is_some() && model::validate::own_name(&name).is_err();
    Some(if is_reserved { format!("{name}-jobs") } else { name })
}

/// Applies a merge patch to a spec.
pub(super) fn patched(spec: &JobSpec, patch: &Value) -> Result<JobSpec, Failure> {
    let mut value = serde_json::to_value(spec).map_err(anyhow::Error::from)?;
    if *patch == json!({}) {
        return Ok(spec.clone());
    }
    json_patch::merge(&mut value, patch);
    serde_json::from_value(value)
        .map_err(|error| Failure::usage(format!("cannot build the job spec: {error}")))
}

/// Spec from a file, and whether the file sets its namespace and its name.
#[derive(Debug)]
struct FileSpec {
    names_namespace: bool,
    names_job: bool,
    spec: JobSpec,
}

impl Default for FileSpec {
    /// The spec of an empty file: a job without a command.
    fn default() -> Self {
        let spec = JobSpec::command(Vec::<String>::new());
        Self { names_namespace: false, names_job: false, spec }
    }
}

/// Fields of a document that determine its form, and whether it sets a namespace and a name.
#[derive(Debug, Deserialize)]
struct Header {
    namespace: Option<serde::de::IgnoredAny>,
    name: Option<serde::de::IgnoredAny>,
    jobs: Option<Vec<Header>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Jobs {
    jobs: Vec<JobSpec>,
}

fn read_file(path: &Path) -> Result<Vec<FileSpec>, Failure> {
    let text = read_text(path)?;
    read_specs(&text).map_err(|detail| {
        let name = if path == Path::new("-") { "standard input".into() } else { path.display().to_string() };
        Failure::usage(format!("`{name}` contains no valid job spec")).fields(vec![model::api::FieldError {
            pointer: String::new(),
            path: name,
            detail,
        }])
    })
}

/// Parses one spec, an object with the key `jobs`, a list of specs, or several YAML documents.
fn read_specs(text: &str) -> Result<Vec<FileSpec>, String> {
    let specs = match text.trim_start().chars().next() {
        Some('[') => zip(from_json(text)?, from_json(text)?),
        Some('{') => match from_json::<Header>(text)? {
            Header { jobs: Some(shapes), .. } => zip(shapes, from_json::<Jobs>(text)?.jobs),
            shape => zip(vec![shape], vec![from_json(text)?]),
        },
        _ => read_yaml(text)?,
    };
    if specs.is_empty() { Err("the file contains no job".into()) } else { Ok(specs) }
}

fn read_yaml(text: &str) -> Result<Vec<FileSpec>, String> {
    let mut shapes: Vec<Header> = from_yaml(text)?;
    match shapes.as_mut_slice() {
        [Header { jobs: Some(jobs), .. }] => {
            let specs: Vec<Jobs> = from_yaml(text)?;
            Ok(zip(std::mem::take(jobs), specs.into_iter().flat_map(|s| s.jobs).collect()))
        }
        _ => Ok(zip(shapes, from_yaml(text)?)),
    }
}

/// Parses all YAML documents with the options of the server: `no` is a string, and merge keys (`<<`) are an error.
fn from_yaml<T: DeserializeOwned>(text: &str) -> Result<Vec<T>, String> {
    let options = serde_saphyr::options! {
        merge_keys: serde_saphyr::options::MergeKeyPolicy::Error,
        strict_booleans: true,
        with_snippet: false,
    };
    serde_saphyr::from_multiple_with_options(text, options).map_err(|error| {
        let said = error.to_string();
        let said = said.strip_prefix("error: ").unwrap_or(&said);
        // The error for a wrong value does not name the field, so the line is added.
        let line = error
            .location()
            .and_then(|at| text.lines().nth(usize::try_from(at.line()).ok()?.checked_sub(1)?));
        match line.map(str::trim).filter(|line| !line.is_empty()) {
            Some(line) => format!("{said}, in `{}`", short(line, 80)),
            None => said.to_owned(),
        }
    })
}

fn zip(shapes: Vec<Header>, specs: Vec<JobSpec>) -> Vec<FileSpec> {
    shapes
        .into_iter()
        .zip(specs)
        .map(|(shape, spec)| FileSpec {
            names_namespace: shape.namespace.is_some(),
            names_job: shape.name.is_some(),
            spec,
        })
        .collect()
}

fn from_json<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    fn build_in(namespace: &str, by_flag: bool, line: &[&str]) -> Result<Vec<JobSpec>, String> {
        let line = ["belfry", "submit"].iter().chain(line);
        let cli = Cli::try_parse_from(line).map_err(|e| e.to_string())?;
        let Command::Submit(args) = cli.command else { panic!("not a submission") };
        let now = "2026-11-21T08:00:00Z".parse().unwrap();
        specs(&args, &Namespace { name: namespace.into(), by_flag }, now).map_err(|f| f.render(false))
    }

    fn build(line: &[&str]) -> Result<Vec<JobSpec>, String> {
        build_in("default", false, line)
    }

    fn file(text: &str) -> (tempfile::TempDir, String) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("job");
        std::fs::write(&path, text).unwrap();
        let path = path.display().to_string();
        (dir, path)
    }

    #[test]
    fn a_command_alone_is_a_job_of_defaults_with_the_name_of_the_command() {
        let expected = JobSpec { name: "echo".into(), ..JobSpec::command(["echo", "-n", "hi"]) };
        assert_eq!(build(&["--", "echo", "-n", "hi"]), build(&["echo", "-n", "hi"]));
        assert_eq!(build(&["--", "echo", "-n", "hi"]).unwrap(), [expected]);
    }

    #[test]
    fn an_option_after_the_command_is_noticed() {
        let found = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
            misplaced_option(&words).map(str::to_owned)
        };
        assert_eq!(found(&["echo", "hi", "--wait"]), Some("--wait".to_owned()));
        assert_eq!(found(&["rsync", "--timeout", "9"]), None);
    }

    #[test]
    fn only_a_job_without_a_name_gets_the_name_of_its_command() {
        let names = |line: &[&str]| {
            build(line).unwrap().into_iter().map(|spec| spec.name).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(&["--name", "load", "--", "./import"]), "load");
        let (_dir, path) = file(
            "[{\"name\": \"filed\", \"run\": {\"process\": {\"command\": [\"./a\"]}}},
              {\"run\": {\"process\": {\"command\": [\"./b\"]}}},
              {\"name\": \"job\", \"run\": {\"process\": {\"command\": [\"./c\"]}}},
              {\"run\": {\"process\": {\"script\": \"./d\"}}}]",
        );
        assert_eq!(names(&["-f", &path]), "filed b job job");
        let (_dir, script) = file("true");
        assert_eq!(names(&["--script", &script]), "job");
        // A run cannot have a name that a URL reserves; a job can.
        assert_eq!(names(&["--", "./import"]), "import");
        assert_eq!(names(&["--shards", "2", "--", "./import"]), "import-jobs");
    }

    /// A8. Every field of a spec can be said on the command line.
    #[test]
    fn every_field_of_a_spec_has_a_flag() {
        let (_dir, path) = file("hear me\n");
        let specs = build_in(
            "pay",
            false,
            &[
                "--name",
                "n",
                "--owner",
                "me",
                "-l",
                "a=b=c",
                "--label",
                "d=",
                "--retention",
                "2d",
                "--queue",
                "q",
                "--priority",
                "7",
                "--in",
                "90s",
                "--deadline",
                "5m",
                "--finish-by",
                "6h",
                "--finish-action",
                "cancel",
                "--constraint",
                "zone=a,b",
                "--constraint",
                "!gpu",
                "--placement",
                "pack",
                "--concurrency-key",
                "k",
                "--concurrency-limit",
                "3",
                "--timeout",
                "1h",
                "--grace",
                "3s",
                "--retries",
                "4",
                "--start-retries",
                "5",
                "--max-lost",
                "6",
                "--backoff",
                "2s",
                "--backoff-factor",
                "1.5",
                "--backoff-max",
                "1m",
                "--backoff-jitter",
                "0",
                "--retry-on",
                "1,2",
                "--no-retry-on",
                "3",
                "--delivery",
                "at-most-once",
                "--cpu",
                "0.5",
                "--memory",
                "256MiB",
                "--resource",
                "gpu=1",
                "--cpu-limit",
                "2",
                "--memory-limit",
                "1GiB",
                "--pids-limit",
                "99",
                "--limits",
                "best-effort",
                "--input",
                "text=in/text",
                "--program",
                "tool=bin/tool",
                "--store",
                "out.txt=loud",
                "--store-optional",
                "log=log",
                "-e",
                "A=1",
                "--env",
                "B=x=y",
                "--stdin",
                &path,
                "--workdir",
                "/srv",
                "--idempotency-key",
                "once",
                "--",
                "./run",
                "--fast",
            ],
        );
        insta::assert_snapshot!("every_flag", yaml(&specs.unwrap()[0]).unwrap());
    }

    #[test]
    fn a_script_is_read_from_its_file() {
        let (_dir, path) = file("print('hi')\n");
        let spec =
            &build(&["--script", &path, "--interpreter", "python3", "--interpreter", "-u"]).unwrap()[0];
        let Run::Process(process) = &spec.run else { panic!("not a process") };
        assert_eq!(process.script.as_deref(), Some("print('hi')\n"));
        assert_eq!(process.interpreter, ["python3", "-u"]);
        assert!(process.command.is_empty());
    }

    #[test]
    fn flags_go_before_a_file_and_leave_the_rest_of_it() {
        let (_dir, path) = file(
            "name: filed\nnamespace: theirs\npriority: 10\nretry: { max_retries: 9, backoff: { initial: 7s } }\nrun: { process: { script: \"true\", env: { A: \"1\" } } }\n",
        );
        let spec = &build(&["-f", &path, "--priority", "90", "--backoff-max", "8s", "-e", "B=2"]).unwrap()[0];
        assert_eq!((spec.name.as_str(), spec.namespace.as_str(), spec.priority), ("filed", "theirs", 90));
        assert_eq!((spec.retry.max_retries, spec.retry.backoff.initial.to_string()), (9, "7s".into()));
        let Run::Process(process) = &spec.run else { panic!("not a process") };
        assert_eq!(process.env.len(), 2);
        let spec = &build(&["-f", &path, "--", "echo"]).unwrap()[0];
        let Run::Process(process) = &spec.run else { panic!("not a process") };
        assert_eq!((process.command.len(), &process.script), (1, &None));
    }

    #[test]
    fn a_namespace_of_the_command_line_goes_before_that_of_a_file_and_that_before_the_environments() {
        let (_dir, path) = file(
            "namespace: theirs\nrun: { process: { command: [\"true\"] } }\n---\nrun: { process: { command: [\"true\"] } }\n",
        );
        let namespaces = |by_flag| -> Vec<String> {
            build_in("mine", by_flag, &["-f", &path]).unwrap().into_iter().map(|s| s.namespace).collect()
        };
        assert_eq!(namespaces(false), ["theirs", "mine"]);
        assert_eq!(namespaces(true), ["mine", "mine"]);
        assert!(build_in("*", true, &["true"]).unwrap_err().contains("one namespace"));
    }

    const SEVERAL_DOCUMENTS: &str = "\
# two
---
run: { process: { command: [\"true\"] } }
--- # the second
name: b
run:
  process:
    script: |
      echo
      ---
";

    #[test]
    fn a_file_may_have_several_jobs_in_several_forms() {
        let one = r#"{"run": {"process": {"command": ["true"]}}}"#;
        for text in [
            format!("{{\"jobs\": [{one}, {one}]}}"),
            format!("[{one},\n{one}]"),
            format!("jobs:\n  - {one}\n  - {one}\n"),
            SEVERAL_DOCUMENTS.to_owned(),
        ] {
            let (_dir, path) = file(&text);
            assert_eq!(build(&["-f", &path]).map(|s| s.len()), Ok(2), "{text}");
        }
        let (_dir, path) = file(&format!("[{one}, {one}]"));
        assert!(
            build(&["-f", &path, "--idempotency-key", "x"])
                .unwrap_err()
                .contains("requires a file with one job")
        );
    }

    #[test]
    fn what_is_wrong_in_a_file_is_told_with_its_place() {
        for (text, told) in [
            ("", "no job"),
            ("nmae: a\nrun: { process: { command: [\"true\"] } }\n", "nmae"),
            ("name: a\n", "run"),
            ("run: { process: { command: [\"true\"] } }\ntimeout: 90\n", "in `timeout: 90`"),
            ("a: 1\nrun: { process: { command: [x] } }\npriority: 400\n", "line 1, column 1"),
            ("run: { process: { command: [x] } }\npriority: 400\n", "in `priority: 400`"),
            ("{\"run\": {\"process\": {}},", "line 1"),
            ("{\"run\": {\"process\": {\"uid\": 0}}}", "uid"),
        ] {
            let (_dir, path) = file(text);
            let error = build(&["-f", &path]).unwrap_err();
            assert!(error.contains(told), "{text}: {error}");
        }
        assert!(build(&["-f", "/no/such/file"]).unwrap_err().contains("/no/such/file"));
    }

    #[test]
    fn contradicting_options_are_rejected() {
        for line in [
            &["--at", "08:00", "--in", "1h", "true"][..],
            &["--script", "x", "--", "true"],
            &["--interpreter", "sh", "--", "true"],
            &["--concurrency-limit", "1", "true"],
            &["--dry-run", "--wait", "true"],
            &["--label", "novalue", "true"],
            &["--env", "NOT_SET_ANYWHERE_HERE", "true"],
            &["--timeout", "90", "true"],
            &["--nmae", "x", "true"],
        ] {
            assert!(build(line).is_err(), "{line:?}");
        }
    }
}
