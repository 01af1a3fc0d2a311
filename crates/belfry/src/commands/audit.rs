//! `belfry audit`: searches, exports and verifies the audit log.

use std::io::{BufRead, BufReader};
use std::path::Path;

use audit::{Link, Sealed, Verifier};
use client::{AuditFilter, Client};
use futures::stream::TryStreamExt as _;

use super::{Context, Namespace, note_truncated, read_items};
use crate::args::audit::{AuditCommand, AuditFilterArgs, AuditVerifyArgs};
use crate::failure::{Exit, Failure};
use crate::output::{Format, OutputOptions, stream_value};

pub(super) async fn run(context: &Context, command: AuditCommand) -> Result<(), Failure> {
    // Without a server.
    if let AuditCommand::Verify(AuditVerifyArgs { after, file: Some(file) }) = &command {
        return verify_file(context, file, *after);
    }
    let (client, namespace) = context.connect()?;
    match command {
        AuditCommand::List { filter: args, many } => {
            let (entries, more) = read_items(client.audit(filter(args, &namespace)), &many).await?;
            context.out.list(&entries, "entries")?;
            note_truncated(context.out, more, &many);
            Ok(())
        }
        AuditCommand::Get { sequence } => context.out.one(&client.audit_entry(sequence).await?),
        AuditCommand::Export { filter: args } => {
            let look = OutputOptions { format: Format::Json, ..context.out.look };
            let mut entries = client.audit(filter(args, &namespace));
            while let Some(entry) = entries.try_next().await? {
                context.out.data(stream_value(&look, &entry)?)?;
            }
            Ok(())
        }
        AuditCommand::Verify(args) => verify(context, &client, args.after).await,
    }
}

/// Most entries are about objects in namespaces, but some are not, so the namespace of the context is no filter.
fn filter(args: AuditFilterArgs, namespace: &Namespace) -> AuditFilter {
    AuditFilter {
        namespace: namespace.filter().filter(|_| namespace.by_flag()),
        actor: args.actor,
        action: args.action,
        verb: args.verb,
        resource: args.resource,
        object: args.object,
        outcome: args.outcome,
        since: args.since,
        until: args.until,
    }
}

/// Verifies the log of the server, part by part.
async fn verify(context: &Context, client: &Client, after: Option<Link>) -> Result<(), Failure> {
    let mut after = after.map(|link| (link.sequence, link.hash.to_string()));
    let mut verified = 0;
    loop {
        let report =
            client.verify_audit(after.as_ref().map(|(sequence, hash)| (*sequence, hash.as_str()))).await?;
        verified += report.verified;
        if let Some(problem) = report.problem {
            return Err(damaged(&problem, verified));
        }
        if report.complete {
            if report.deleted_until > 0 {
                context.out.note(format!(
                    "entries up to {} were deleted after their retention",
                    report.deleted_until
                ));
            }
            return context.out.data(summary(verified, report.sequence, &report.hash));
        }
        context.out.note(format!("{verified} entries verified"));
        after = Some((report.sequence, report.hash));
    }
}

/// Verifies exported entries.
fn verify_file(context: &Context, file: &Path, after: Option<Link>) -> Result<(), Failure> {
    let reader: Box<dyn BufRead> = match file.to_str() {
        Some("-") => Box::new(std::io::stdin().lock()),
        _ => Box::new(BufReader::new(std::fs::File::open(file).map_err(|error| cannot_read(file, error))?)),
    };
    let mut entries = Vec::new();
    for (i, line) in reader.lines().enumerate() {
        let line = line.map_err(|error| cannot_read(file, error))?;
        if line.trim().is_empty() {
            continue;
        }
        let entry = serde_json::from_str(&line).ok().and_then(|value| audit::exported(&value));
        entries.push(entry.ok_or_else(|| {
            let detail =
                format!("cannot read `{}`: line {} is no entry of the audit log", file.display(), i + 1);
            Failure::usage(detail).help("`belfry audit export` writes such files")
        })?);
    }
    entries.sort_unstable_by_key(|entry: &Sealed| entry.link.sequence);
    entries.dedup();
    let mut entries =
        entries.iter().skip_while(|entry| after.is_some_and(|after| entry.link.sequence <= after.sequence));
    let mut verifier = match (after, entries.next()) {
        (_, None) => return Err(Failure::usage(format!("`{}` has no entries to verify", file.display()))),
        (Some(after), Some(first)) => {
            let mut verifier = Verifier::after(after);
            verifier.check(first).map_err(|broken| damaged(&broken.to_string(), 0))?;
            verifier
        }
        (None, Some(first)) if first.link.sequence == 1 => {
            let mut verifier = Verifier::after(Link::default());
            verifier.check(first).map_err(|broken| damaged(&broken.to_string(), 0))?;
            verifier
        }
        (None, Some(first)) => {
            let sequence = first.link.sequence;
            context
                .out
                .note(format!("the file begins with entry {sequence}, whose own hash cannot be verified"));
            Verifier::from(first)
        }
    };
    for entry in entries {
        verifier.check(entry).map_err(|broken| damaged(&broken.to_string(), verifier.verified()))?;
    }
    let last = verifier.last();
    context.out.data(summary(verifier.verified(), last.sequence, &last.hash.to_string()))
}

fn summary(verified: u64, sequence: u64, hash: &str) -> String {
    format!("{verified} entries verified: the audit log is complete and unchanged\n{sequence}:{hash}\n")
}

fn damaged(problem: &str, verified: u64) -> Failure {
    let detail = format!("the audit log was damaged: {problem} ({verified} entries before it are valid)");
    Failure::message(Exit::Failed, detail)
        .help("compare with an exported file or a backup; entries up to the damage are valid")
}

fn cannot_read(file: &Path, error: std::io::Error) -> Failure {
    Failure::usage(format!("cannot read `{}`: {error}", file.display()))
}
