//! `belfry events`: writes the event feed until it is interrupted.

use client::{EventFilter, FeedItem};
use futures::TryStreamExt as _;

use super::Context;
use crate::args::more::EventsArgs;
use crate::failure::Failure;

pub(super) async fn run(context: &Context, args: EventsArgs) -> Result<(), Failure> {
    let (client, namespace) = context.connect()?;
    let filter = EventFilter {
        // Workers and queues have no namespace: only an explicit `--namespace` may hide their events.
        namespace: namespace.filter().filter(|_| namespace.by_flag()),
        job_id: context.optional_id(&client, args.job)?,
        kind: args.kind,
        since: args.since,
    };
    let mut feed = client.events(&filter);
    let mut first = true;
    while let Some(item) = feed.try_next().await? {
        match item {
            FeedItem::Event(event) => context.out.item(&*event, std::mem::take(&mut first))?,
            FeedItem::Reset => {
                context.out.warn("some events are missing: their retention ended before they were read")
            }
        }
    }
    Ok(())
}
