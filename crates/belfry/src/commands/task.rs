//! `belfry task …`: for shells, what tasks of other languages ask of their socket.

use std::io::Read as _;
use std::path::Path;

use client::Task;
use model::limits::CHECKPOINT_BYTES_MAX;

use super::Context;
use crate::args::task::{CheckpointCommand, TaskCommand};
use crate::failure::{Exit, Failure};

pub(super) async fn run(context: &Context, command: TaskCommand) -> Result<(), Failure> {
    let task = Task::from_env()?;
    match command {
        TaskCommand::Checkpoint(CheckpointCommand::Get { file }) => {
            let Some(last) = task.checkpoint().await? else {
                return Err(Failure::message(Exit::NotFound, "the job has saved no checkpoint"));
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
    }
}

/// What is to be saved; reads no more of it than can be.
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
        return Err(Failure::usage(format!("a checkpoint has at most {CHECKPOINT_BYTES_MAX} bytes"))
            .help("store what is large as an artifact, and save its name"));
    }
    Ok(bytes)
}
