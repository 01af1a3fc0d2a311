//! Result of `belfry task add`: elements that a task added to a step of its run.

use client::AddedElements;
use serde::Serialize;

use super::text::{count, escape};
use super::{Format, OutputOptions};
use crate::failure::Failure;

/// Totals over all batches of one call.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Added {
    /// Step that runs for each element.
    step: String,
    /// Number of elements in the batches.
    count: u64,
    /// Number of these elements that the step did not have before.
    added: u64,
    /// Number of elements of the step after the call.
    total: u32,
}

impl Added {
    /// Adds the result of a batch to the totals.
    pub(crate) fn include(&mut self, batch: AddedElements) {
        let size = u64::from(batch.count);
        self.count += size;
        self.added += if batch.added { size } else { 0 };
        (self.step, self.total) = (batch.step, batch.total);
    }
}

/// Formats the result.
pub(crate) fn added(look: &OutputOptions, added: &Added) -> Result<String, Failure> {
    Ok(match look.format {
        Format::Json => super::json(added)?,
        Format::Yaml => super::yaml(added)?,
        Format::Name => format!("{}\n", escape(&added.step)),
        Format::Table | Format::Wide => sentence(added),
    })
}

fn sentence(added: &Added) -> String {
    let there = match added.count - added.added {
        0 => String::new(),
        1 => " (1 already existed)".to_owned(),
        there => format!(" ({there} already existed)"),
    };
    let (what, total) = (count(added.added, "element"), count(added.total.into(), "element"));
    format!("added {what} to step {}{there}; the step has {total}\n", escape(&added.step))
}

#[cfg(test)]
mod tests {
    use model::Timestamp;

    use super::*;

    fn batch(count: u32, total: u32, added: bool) -> AddedElements {
        AddedElements { step: "page".into(), first: total - count, count, total, added }
    }

    fn told(format: Format, batches: &[AddedElements]) -> String {
        let mut all = Added::default();
        batches.iter().cloned().for_each(|batch| all.include(batch));
        added(&OutputOptions { format, color: false, now: Timestamp::default(), width: None }, &all).unwrap()
    }

    /// C4.
    #[test]
    fn added_and_existing_elements_are_counted_separately() {
        let both = [batch(1_000, 1_000, false), batch(500, 1_507, true)];
        let table = |batches| told(Format::Table, batches);
        assert_eq!(table(&both[1..]), "added 500 elements to step page; the step has 1507 elements\n");
        assert_eq!(
            table(&both),
            "added 500 elements to step page (1000 already existed); the step has 1507 elements\n"
        );
        assert_eq!(
            table(&[batch(1, 1, false)]),
            "added 0 elements to step page (1 already existed); the step has 1 element\n"
        );
        assert_eq!(told(Format::Name, &both), "page\n");
        insta::assert_snapshot!(told(Format::Json, &both), @r#"
        {
          "step": "page",
          "count": 1500,
          "added": 500,
          "total": 1507
        }
        "#);
    }
}
