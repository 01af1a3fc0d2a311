//! Options of `submit` that start several jobs from one spec: shards, elements of a list, or all workers.
//!
//! [`ManyArgs::for_each`] turns the options into the `for_each` of a mapped step; `commands::multiple` starts
//! a workflow run with this step only. At most one of `--shards` (with `--shard-items`), `--over` and
//! `--on-all-workers` is given: clap rejects the other combinations. With `--on-all-workers`, the constraints
//! of the job select the workers, and are removed from the job.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use model::spec::Constraint;
use model::workflow::{ElementSource, ForEach};
use serde_json::Value;

use super::spec::read_text;
use crate::failure::Failure;

/// Value of `BELFRY_ITEM` for each shard, by the index of the shard.
type ShardItems = BTreeMap<u32, String>;

/// Parses `0=Beijing,1=Shanghai`.
fn shard_items(text: &str) -> Result<ShardItems, String> {
    let mut items = ShardItems::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (index, item) = part.split_once('=').ok_or("expected NUMBER=ITEM,NUMBER=ITEM,…")?;
        let index =
            index.trim().parse().map_err(|_| format!("expected the number of a shard but got `{index}`"))?;
        if items.insert(index, item.trim().to_owned()).is_some() {
            return Err(format!("shard {index} appears twice"));
        }
    }
    if items.is_empty() { Err("expected NUMBER=ITEM,NUMBER=ITEM,…".into()) } else { Ok(items) }
}

/// Options that run one spec as several jobs.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Several jobs")]
pub(crate) struct ManyArgs {
    /// Number of shards: one job per shard, with its number in BELFRY_INDEX (from 0) and the total in BELFRY_TOTAL
    #[arg(long, value_name = "N", conflicts_with_all = ["over", "on_all_workers"])]
    pub(crate) shards: Option<u32>,
    /// Value of BELFRY_ITEM for each shard number: 0=Beijing,1=Shanghai
    #[arg(long, value_name = "ITEMS", value_parser = shard_items, conflicts_with_all = ["over", "on_all_workers"])]
    pub(crate) shard_items: Option<ShardItems>,
    /// File with a JSON list, or one element per line, `-` for standard input; one job runs per element, with the
    /// element in BELFRY_ITEM
    #[arg(long, value_name = "FILE", conflicts_with = "on_all_workers")]
    pub(crate) over: Option<PathBuf>,
    /// Run one job on each worker that satisfies all --constraint options
    #[arg(long)]
    pub(crate) on_all_workers: bool,
    /// Maximum number of concurrent jobs [default: unlimited]
    #[arg(long, value_name = "N")]
    pub(crate) max_parallel: Option<u32>,
    /// Maximum number of failed jobs; if more fail, the run fails and starts no further job [default: 0]
    #[arg(long, value_name = "N")]
    pub(crate) max_failed: Option<u32>,
}

impl ManyArgs {
    /// Whether the options start one run of several jobs.
    pub(crate) fn is_some(&self) -> bool {
        self.shards.is_some() || self.shard_items.is_some() || self.over.is_some() || self.on_all_workers
    }

    /// Returns the elements to run jobs for, if any. With `--on-all-workers` the constraints select the workers.
    ///
    /// # Errors
    /// Fails if options contradict each other, or if the file cannot be read or has no elements.
    pub(crate) fn for_each(&self, constraints: &mut Vec<Constraint>) -> Result<Option<ForEach>, Failure> {
        let over = match (&self.shard_items, self.shards, &self.over) {
            (Some(items), shards, _) => ElementSource::Items(in_order(items, shards)?),
            (None, Some(shards), _) => ElementSource::Shards(shards),
            (None, None, Some(path)) => ElementSource::Items(elements(path)?),
            (None, None, None) if self.on_all_workers => ElementSource::Workers(std::mem::take(constraints)),
            (None, None, None) if self.max_parallel.is_some() || self.max_failed.is_some() => {
                return Err(Failure::usage("`--max-parallel` and `--max-failed` require several jobs").help(
                    "add `--shards N`, `--over FILE` or `--on-all-workers`; for single jobs, limit the queue with \
                     `belfry queue set QUEUE --concurrency N`",
                ));
            }
            (None, None, None) => return Ok(None),
        };
        let max_failed = self.max_failed.unwrap_or_default();
        Ok(Some(ForEach { max_parallel: self.max_parallel, max_failed, ..ForEach::new(over) }))
    }
}

/// Returns the items in the order of their indices. With a number of shards, missing items are empty strings.
fn in_order(items: &ShardItems, shards: Option<u32>) -> Result<Vec<Value>, Failure> {
    let last = items.last_key_value().map_or(0, |(&index, _)| index);
    if let Some(shards) = shards.filter(|&shards| last >= shards) {
        return Err(Failure::usage(format!(
            "`--shard-items` has shard {last}, but there are only {shards} shards"
        ))
        .help("the first shard has the number 0"));
    }
    if shards.is_none() && items.len() <= last as usize {
        let missing = (0..last).find(|index| !items.contains_key(index)).unwrap_or_default();
        return Err(Failure::usage(format!("`--shard-items` has no item for shard {missing}")).help(
            format!("add the item, or set `--shards {}`: missing items are then empty", u64::from(last) + 1),
        ));
    }
    let total = shards.unwrap_or(last + 1);
    Ok((0..total).map(|index| Value::from(items.get(&index).map_or("", String::as_str))).collect())
}

/// Parses the elements of a file: a JSON list, or one element per non-empty line.
fn elements(path: &Path) -> Result<Vec<Value>, Failure> {
    let text = read_text(path)?;
    let name = if path == Path::new("-") { "standard input".into() } else { format!("`{}`", path.display()) };
    let elements: Vec<Value> = if text.trim_start().starts_with('[') {
        serde_json::from_str(&text)
            .map_err(|error| Failure::usage(format!("{name} does not contain a JSON list: {error}")))?
    } else {
        text.lines().filter(|line| !line.trim().is_empty()).map(Value::from).collect()
    };
    if elements.is_empty() { Err(Failure::usage(format!("{name} has no elements"))) } else { Ok(elements) }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use clap::Parser;
    use serde_json::json;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        many: ManyArgs,
    }

    fn read(line: &[&str]) -> Result<Option<ForEach>, String> {
        let line = Line::try_parse_from(["belfry"].iter().chain(line)).map_err(|error| error.to_string())?;
        line.many.for_each(&mut Vec::new()).map_err(|failure| failure.render(false))
    }

    fn items(line: &[&str]) -> Result<Vec<Value>, String> {
        match read(line)? {
            Some(ForEach { over: ElementSource::Items(items), .. }) => Ok(items),
            other => Err(format!("{other:?}")),
        }
    }

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    /// C3.
    #[test]
    fn shards_have_the_items_of_their_numbers() {
        let shards = read(&["--shards", "8", "--max-parallel", "2", "--max-failed", "1"]).unwrap().unwrap();
        let expected =
            ForEach { max_parallel: Some(2), max_failed: 1, ..ForEach::new(ElementSource::Shards(8)) };
        assert_eq!(shards, expected);
        assert_eq!(
            items(&["--shard-items", "1=Shanghai, 0=Beijing"]),
            Ok(vec![json!("Beijing"), json!("Shanghai")])
        );
        let padded = items(&["--shards", "3", "--shard-items", "0=a=b"]);
        assert_eq!(padded, Ok(vec![json!("a=b"), json!(""), json!("")]));
        for (wrong, told) in [
            (&["--shard-items", "0=a,2=c"][..], "no item for shard 1"),
            (&["--shards", "2", "--shard-items", "2=c"], "has shard 2"),
            (&["--shard-items", "0=a,0=b"], "twice"),
            (&["--shard-items", "a"], "NUMBER=ITEM"),
            (&["--max-failed", "1"], "require several jobs"),
        ] {
            let error = items(wrong).unwrap_err();
            assert!(error.contains(told), "{wrong:?}: {error}");
        }
    }

    /// C3.
    #[test]
    fn elements_are_a_list_in_json_or_lines() {
        let path = |file: &tempfile::NamedTempFile| file.path().display().to_string();
        let (list, lines, none) = (file(" [1, {\"a\": 2}]\n"), file("eu\n\n cn\n"), file("\n"));
        assert_eq!(items(&["--over", &path(&list)]), Ok(vec![json!(1), json!({"a": 2})]));
        assert_eq!(items(&["--over", &path(&lines)]), Ok(vec![json!("eu"), json!(" cn")]));
        assert!(items(&["--over", &path(&none)]).unwrap_err().contains("no elements"));
        assert!(read(&["--over", "x", "--shards", "2"]).is_err());
        assert!(read(&["--on-all-workers", "--shards", "2"]).is_err());
        assert_eq!(read(&[]), Ok(None));
    }

    /// C3. The constraints of the job select the workers of `--on-all-workers`.
    #[test]
    fn a_broadcast_takes_the_constraints() {
        let rule =
            serde_json::from_value::<Constraint>(json!({"label": "zone", "operator": "in", "values": ["a"]}));
        let mut constraints = vec![rule.unwrap()];
        let many = ManyArgs { on_all_workers: true, ..ManyArgs::default() };
        let each = many.for_each(&mut constraints).unwrap().unwrap();
        assert!(matches!(each.over, ElementSource::Workers(rules) if rules.len() == 1));
        assert!(constraints.is_empty());
    }
}
