//! `belfry task`: checkpoints, added elements and endpoints for shell scripts. Tasks in other languages use the task socket.

mod endpoints;

use std::io::Read as _;
use std::path::Path;

use client::Task;
use model::api::FieldError;
use model::limits::{ADDED_MAX, BATCH_NAME_BYTES_MAX, CHECKPOINT_BYTES_MAX, ITEM_BYTES_MAX};
use serde_json::Value;

use super::Context;
use crate::args::spec::read_text;
use crate::args::task::{AddArgs, CheckpointCommand, TaskCommand};
use crate::failure::{Exit, Failure};
use crate::output::added_elements::Added;

pub(super) async fn run(context: &Context, command: TaskCommand) -> Result<(), Failure> {
    let task = Task::from_env()?;
    match command {
        TaskCommand::Checkpoint(CheckpointCommand::Get { file }) => {
            let Some(last) = task.checkpoint().await? else {
                return Err(Failure::message(Exit::NotFound, "the job has no checkpoint"));
            };
            if file == Path::new("-") {
                return context.out.data(&last.data);
            }
            std::fs::write(&file, &last.data).map_err(|error| {
                Failure::message(Exit::Failed, format!("cannot write `{}`: {error}", file.display()))
            })
        }
        TaskCommand::Checkpoint(CheckpointCommand::Set { file, content_type, expect }) => {
            let version = task.save_checkpoint(read(&file)?, &content_type, expect).await?;
            context.out.data(format!("{version}\n"))
        }
        TaskCommand::Add(args) => add(context, &task, args).await,
        TaskCommand::Endpoints(args) => endpoints::run(context, &task, args).await,
    }
}

async fn add(context: &Context, task: &Task, args: AddArgs) -> Result<(), Failure> {
    let elements = match &args.file {
        Some(file) => elements(&read_text(file)?)?,
        None => args.elements.iter().map(|text| element(text)).collect(),
    };
    if elements.is_empty() {
        // Not an error: a task may find no elements.
        context.out.note("no elements to add");
        return Ok(());
    }
    check(&elements)?;
    let names = batch_names(&args.batch, elements.len())?;
    let mut added = Added::default();
    for (name, batch) in names.iter().zip(elements.chunks(ADDED_MAX)) {
        added.include(task.add_elements(args.to.as_deref(), name, batch).await?);
    }
    context.out.added(&added)
}

/// Parses the elements of a file: a JSON list, or one element per non-empty line.
fn elements(text: &str) -> Result<Vec<Value>, Failure> {
    if text.trim_start().starts_with('[') {
        return serde_json::from_str(text)
            .map_err(|error| Failure::usage(format!("expected a JSON list: {error}")));
    }
    Ok(text.lines().filter(|line| !line.trim().is_empty()).map(element).collect())
}

/// Parses an element: valid JSON as JSON, any other text as a string.
fn element(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))
}

/// Checks the size of each element before the first batch is sent.
fn check(elements: &[Value]) -> Result<(), Failure> {
    let wrong = elements.iter().enumerate().filter_map(|(i, element)| {
        let found = element.to_string().len();
        let detail = format!("has {found} bytes: expected at most {ITEM_BYTES_MAX}");
        let (pointer, path) = (format!("/{i}"), format!("[{i}]"));
        (found > ITEM_BYTES_MAX).then_some(FieldError { pointer, path, detail })
    });
    let wrong: Vec<_> = wrong.collect();
    if wrong.is_empty() {
        return Ok(());
    }
    Err(Failure::usage("some elements are too large")
        .fields(wrong)
        .help("store large data as an artifact, and add the name of the artifact"))
}

/// Returns the names of the batches for this number of elements: `NAME`, `NAME/2`, `NAME/3`.
fn batch_names(name: &str, elements: usize) -> Result<Vec<String>, Failure> {
    let further = (2..=elements.div_ceil(ADDED_MAX)).map(|number| format!("{name}/{number}"));
    let names: Vec<_> = std::iter::once(name.to_owned()).chain(further).collect();
    let longest = names.last().map_or(0, String::len);
    if name.is_empty() || longest > BATCH_NAME_BYTES_MAX {
        let found = format!("the name of the batch has {longest} bytes");
        return Err(Failure::usage(format!("{found}: expected 1 to {BATCH_NAME_BYTES_MAX}")));
    }
    Ok(names)
}

/// Reads the data of a checkpoint; stops after the maximum size.
fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    let failed = |error| Failure::usage(format!("cannot read `{}`: {error}", file.display()));
    let mut bytes = Vec::new();
    let most = CHECKPOINT_BYTES_MAX as u64 + 1;
    if file == Path::new("-") {
        std::io::stdin().lock().take(most).read_to_end(&mut bytes).map_err(failed)?;
    } else {
        std::fs::File::open(file).and_then(|open| open.take(most).read_to_end(&mut bytes)).map_err(failed)?;
    }
    if bytes.len() > CHECKPOINT_BYTES_MAX {
        return Err(Failure::usage(format!(
            "the checkpoint is too large: expected at most {CHECKPOINT_BYTES_MAX} bytes"
        ))
        .help("store large data as an artifact, and save the name of the artifact"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// C4.
    #[test]
    fn an_element_is_json_where_it_reads_as_such_and_else_a_text() {
        let read: Vec<_> = ["7", "007", "null", "{\"a\": 1}", "https://x", "[1", ""].map(element).into();
        assert_eq!(
            read,
            [
                json!(7),
                json!("007"),
                json!(null),
                json!({"a": 1}),
                json!("https://x"),
                json!("[1"),
                json!("")
            ]
        );
    }

    /// C4.
    #[test]
    fn a_file_has_a_list_or_an_element_a_line() {
        let read = |text| elements(text).map_err(|failure| failure.render(false));
        assert_eq!(read(" [1,\n \"a\"]\n"), Ok(vec![json!(1), json!("a")]));
        assert_eq!(read("{\"a\": 1}\n\n a\r\n2\n"), Ok(vec![json!({"a": 1}), json!(" a"), json!(2)]));
        assert!(read("[1,\n2").unwrap_err().contains("expected a JSON list"));
    }

    /// C4. Nothing is added where a part would be refused.
    #[test]
    fn oversized_elements_are_rejected_before_the_first_batch() {
        let told = |elements: &[Value]| check(elements).map_err(|failure| failure.render(false));
        let error = told(&[json!(1), json!("x".repeat(1_023))]).unwrap_err();
        assert!(error.contains("[1]: has 1025 bytes: expected at most 1024"), "{error}");
        assert_eq!(told(&[json!("x".repeat(1_022))]), Ok(()));
    }

    /// C4.
    #[test]
    fn many_elements_are_several_batches_with_names_of_their_own() {
        assert_eq!(batch_names("a", 1_000).unwrap(), ["a"]);
        assert_eq!(batch_names("a", 2_001).unwrap(), ["a", "a/2", "a/3"]);
        let long = "x".repeat(BATCH_NAME_BYTES_MAX);
        assert_eq!(batch_names(&long, 1).unwrap(), [long.as_str()]);
        assert!(batch_names(&long, 1_001).is_err());
        assert!(batch_names("", 1).is_err());
    }
}
