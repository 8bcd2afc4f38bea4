import { beforeAll, describe, expect, test } from 'vitest'
import { recordingDb, scansOf } from '../bench/ops-plans.ts'
import { findEventsOfRun } from '../src/events/run-events.ts'
import type { RunFilter } from '../src/events/runs.ts'
import { testDatabase } from './support/database.ts'

const { pool } = await testDatabase()
const EVENTS = 1_500
const closed = ['processed', 'ignored', 'failed']
/** When the event of this number came, give or take a minute. */
const at = (number: number) => new Date(Date.UTC(2026, 10, 29) + number * 1_000)

/** From 0 to 255, the same in each run. */
const die = (name: string) => `get_byte(sha256(convert_to('${name}' || number, 'UTF8')), 0)`

// One source brings most; of one type there are few, and of another one many, but late. Up to a minute out of order.
beforeAll(async () => {
  await pool.query(
    `insert into webhook_events (source, event_id, id_basis, id_signed, type, received_at, body_sha256, headers, status, processed_at, error)
     select case when ${die('source')} < 180 then 'busy' else 'shop_' || ${die('shop')} % 4 end, 'e' || number, 'provider', true,
       case when number % 97 = 5 then 'rare' when number > $1 * 0.8 and number % 9 < 8 then 'late' when ${die('type')} < 200 then 'usual' end,
       $2::timestamptz + number * interval '1 s' + ${die('time')} * interval '234 ms', '', '{}',
       status, case when status in ('processed', 'ignored') then now() end, case when status in ('failed', 'quarantined') then 'broken' end
     from generate_series(1, $1::int) number
       cross join lateral (select (array['processed', 'ignored', 'failed', 'quarantined', 'pending'])[greatest(1, ${die('status')} % 7 - 1)] as status) statuses`,
    [EVENTS, at(0)],
  )
})

/** The same by reading each row. */
async function findSlowly({ source, type, status, since, until, event_ids }: RunFilter, most: number) {
  const { rows } = await pool.query<{ id: string; received_at: Date }>(
    `select id, received_at from webhook_events
     where ($1::text is null or source = $1) and ($2::text is null or type = $2) and status = any ($3)
       and ($4::timestamptz is null or received_at >= $4) and ($5::timestamptz is null or received_at < $5) and ($6::text[] is null or event_id = any ($6))
     order by received_at, id`,
    [source, type, status, since, until, event_ids],
  )
  return { ids: rows.slice(0, most).map(({ id }) => id), nextSince: rows[most]?.received_at ?? null }
}

const times: Pick<RunFilter, 'since' | 'until'>[] = [
  {},
  { since: at(EVENTS / 2) },
  { until: at(EVENTS / 2) },
  { since: at(700), until: at(800) },
  { since: at(-90_000), until: at(-3_600) },
  { since: new Date('2999-01-01T00:00:00Z') },
  { since: new Date(0), until: new Date('2999-01-01T00:00:00Z') },
]
const filters = [undefined, 'busy', 'shop_1', 'nowhere'].flatMap((source) =>
  [undefined, 'usual', 'rare', 'late', 'never'].flatMap((type) =>
    [closed, ['ignored'], ['quarantined', 'failed', 'failed'], ['pending']].map((status) => ({ source, type, status })),
  ),
)

describe.each(times)('the events of a run are the oldest that match, each once: %j', (time) => {
  test.each([1, 30, 10_000])('at most %i of them', async (most) => {
    const event_ids = Array.from({ length: 60 }, (_, index) => `e${index * 24}`)
    for (const named of [{}, { event_ids }])
      for (const lane of filters) {
        const filter = { ...lane, ...time, ...named }
        expect({ filter, ...(await findEventsOfRun(pool, filter, most)) }).toEqual({
          filter,
          ...(await findSlowly(filter, most)),
        })
      }
  })
})

test.each(['without statistics', 'with statistics'])('I19 they are found by an index, %s', async (state) => {
  if (state === 'with statistics') await pool.query('analyze webhook_events')
  const { db, statements } = recordingDb(pool)

  for (const lane of filters) for (const time of times) await findEventsOfRun(db, { ...lane, ...time }, 30)

  expect(statements.length).toBeGreaterThan(filters.length * times.length)
  const scanned = []
  for (const statement of statements) scanned.push(...(await scansOf(pool, statement)))
  expect(scanned).toEqual([])
})
