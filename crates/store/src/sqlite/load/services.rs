//! Load of services. Their replicas are jobs, and are loaded as such.
//!
//! If a service cannot be decoded, it is quarantined alone. Its jobs continue on their own.

use model::ServiceId;
use model::record::LiveRow;

use super::{CHUNK, Loading};
use crate::rows::{self, Fields, SERVICE_COLUMNS, SERVICE_REST, Table};
use crate::sqlite::error::Failure;
use crate::sqlite::rows::Decoded;

impl Loading<'_> {
    pub(super) fn services(&mut self) -> Result<(), Failure> {
        let sql = format!("SELECT {SERVICE_COLUMNS} FROM services t {SERVICE_REST} ORDER BY t.id");
        let mut statement = self.connection.prepare(&sql)?;
        let mut found = statement.query([])?;
        let mut chunk = Decoded::default();
        while let Some(row) = found.next()? {
            if row.bits(0, "id").is_ok_and(|bits| !self.shards.owns(ServiceId::from_bits(bits).shard())) {
                continue;
            }
            chunk.push(Table::Services, row, rows::service(row).map(LiveRow::from))?;
            if chunk.good.len() >= CHUNK {
                self.send(std::mem::take(&mut chunk))?;
            }
        }
        self.send(chunk)
    }
}
