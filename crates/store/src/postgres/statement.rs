//! One statement of the project, with the types of its parameters, and how values cross the wire.
//!
//! Types are given here, not asked of the server, so that the same statement can run prepared (the
//! planner's work is done once per connection) or unnamed (behind a pooler that shares connections).

use jiff::Timestamp;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

/// A statement in a file of its own.
#[derive(Debug)]
pub(crate) struct Statement {
    pub text: &'static str,
    pub types: &'static [Type],
}

/// `sql!("claim", TIMESTAMPTZ, UUID)`: the text of `sql/claim.sql` and the types of `$1`, `$2`.
macro_rules! sql {
    ($name:literal $(, $type:ident)* $(,)?) => {
        $crate::postgres::statement::Statement {
            text: include_str!(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/src/postgres/sql/",
                $name,
                ".sql"
            )),
            types: &[$(tokio_postgres::types::Type::$type),*],
        }
    };
}
pub(crate) use sql;

/// A value for a statement's parameter.
pub(crate) type Param<'a> = &'a (dyn ToSql + Sync);

/// A moment, in whole microseconds as Postgres keeps it. The driver's own conversion goes through
/// calendar spans and costs twenty times as much, twice per claimed job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct At(pub Timestamp);

/// Postgres counts from the year 2000.
const EPOCH_US: i64 = 946_684_800_000_000;

/// It knows no time before 4714-11-24 BC, counted from its epoch; ours goes back further. Nothing that is kept is so
/// old, and a filter that begins there means everything.
const FIRST_US: i64 = -211_813_488_000_000_000;

impl<'a> FromSql<'a> for At {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        let since_2000_us = i64::from_be_bytes(raw.try_into()?);
        Ok(Self(Timestamp::from_microsecond(since_2000_us.saturating_add(EPOCH_US))?))
    }
    accepts!(TIMESTAMPTZ);
}

impl ToSql for At {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        let since_2000_us = (self.0.as_microsecond() - EPOCH_US).max(FIRST_US);
        out.extend_from_slice(&since_2000_us.to_be_bytes());
        Ok(IsNull::No)
    }
    accepts!(TIMESTAMPTZ);
    to_sql_checked!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_survive_the_wire() {
        for us in [0, 1, -1, EPOCH_US, 1_700_000_000_123_456] {
            let at = At(Timestamp::from_microsecond(us).unwrap());
            let mut raw = BytesMut::new();
            at.to_sql(&Type::TIMESTAMPTZ, &mut raw).unwrap();
            assert_eq!(At::from_sql(&Type::TIMESTAMPTZ, &raw).unwrap(), at);
        }
    }
}
