import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { runner } from 'node-pg-migrate'
import { beforeEach, describe, expect, test } from 'vitest'
import { migrate } from '../src/migrate.ts'
import { findEvent } from '../src/ops/event-queries.ts'
import { testDatabase } from './support/database.ts'
import { insertEvent } from './support/ops-rows.ts'
import { message, queueSend } from './support/sends.ts'
import { testService } from './support/service.ts'

// I21: the version before goes on beside this one, on this one's schema. So a migration only adds, and each takes the other's rows.

/** From here on versions may stand beside each other: what came before has never been released alone. */
const FIRST_ADDITIVE = '0008'

/** The statements of the way up, without comments and the texts of functions. */
const statementsOf = (sql: string) =>
  (sql.split('-- Down Migration')[0] ?? '')
    .replace(/--.*$/gm, '')
    .replace(/\$(\w*)\$.*?\$\1\$/gs, "''")
    .split(';')
    .map((statement) => statement.trim().replace(/\s+/g, ' ').toLowerCase())
    .filter((statement) => statement !== '')

const tablesMadeIn = (sql: string) =>
  statementsOf(sql).flatMap((it) => /^create table (?:if not exists )?(\w+)/.exec(it)?.[1] ?? [])

/** What of a migration the version before can't live with, where these tables are known to it. */
function problemsOf(sql: string, tables: ReadonlySet<string>): string[] {
  return statementsOf(sql).filter((statement) => {
    const table =
      /^(?:alter table (?:if exists )?(?:only )?|create unique index .*? on |truncate (?:table )?|delete from )(\w+)/.exec(
        statement,
      )?.[1]
    const isDropped = [...statement.matchAll(/^drop (table|view|function|trigger|index|type|schema|sequence)\b/g)].length > 0
    if (isDropped) return true
    if (table === undefined || !tables.has(table)) return false
    if (/^(create unique|truncate|delete)/.test(statement)) return true
    const parts = statement.replace(/^alter table (if exists )?(only )?\w+ /, '').split(/,(?![^(]*\))/)
    return parts.some(
      (part) =>
        /\b(drop|rename|set not null|set schema|disable|enable)\b/.test(part) ||
        /\balter( column)? \w+ (set data )?type\b/.test(part) ||
        /\badd (constraint|check|unique|primary|foreign|exclude)\b/.test(part) ||
        (/\badd (column )?/.test(part) && /\b(check|unique|references|primary key)\b/.test(part)) ||
        (/\badd (column )?/.test(part) && /\bnot null\b/.test(part) && !/\b(default|generated)\b/.test(part)),
    )
  })
}

describe('I21 a migration', () => {
  const files = readdirSync('migrations').sort()
  const sqlOf = (file: string) => readFileSync(join('migrations', file), 'utf8')

  test.each(files.filter((file) => file >= FIRST_ADDITIVE))(
    '%s takes nothing away from the version before, and asks nothing more of it',
    (file) => {
      const known = new Set(files.filter((earlier) => earlier < file).flatMap((earlier) => tablesMadeIn(sqlOf(earlier))))

      expect(known).toContain('webhook_events')
      expect(problemsOf(sqlOf(file), known)).toEqual([])
    },
  )

  test.each([
    'drop table rate_slots',
    'drop index webhook_events_open',
    'drop trigger t on email_sends',
    'alter table email_sends drop column last_error',
    'alter table email_sends drop constraint email_sends_state',
    'alter table email_sends rename column last_error to error',
    'alter table email_sends rename to sends',
    'alter table email_sends add column source text not null',
    "alter table email_sends add source text check (source <> '')",
    'alter table email_sends add column a text, add column b text not null',
    'alter table email_sends add constraint narrow check (length(recipient) < 100)',
    'alter table email_sends add unique (message_id)',
    'alter table email_sends alter column last_error set not null',
    'alter table email_sends alter column version type bigint',
    'create unique index again on email_sends (recipient)',
    "delete from email_sends where state = 'abandoned'",
    'truncate email_sends',
  ])('with “%s” is refused', (statement) => {
    expect(problemsOf(`-- Up Migration\n${statement};`, new Set(['email_sends']))).toEqual([statement])
  })

  test.each([
    'alter table email_sends add column source text',
    'alter table email_sends add column tries integer not null default 0, add column other text',
    'create index more on email_sends (recipient)',
    'create table others (id bigint primary key, send text not null references email_sends (dedupe_key))',
    'create unique index others_once on others (id)',
    'update email_sends set last_error = null',
  ])('with “%s” is not', (statement) => {
    expect(problemsOf(`-- Up Migration\n${statement};\n-- Down Migration\ndrop table others;`, new Set(['email_sends']))).toEqual(
      [],
    )
  })
})

describe('I21 on one database', async () => {
  const database = await testDatabase()
  const { pool } = database
  const service = await testService(database, {
    sources: { stripe: { provider: 'stripe', secrets: ['whsec_of_the_tests'] } },
    followUps: [
      { source: 'stripe', type: 'invoice.paid', email: ({ id }) => ({ key: `receipt:${id}`, ...message('ada@example.com') }) },
    ],
  })
  beforeEach(() =>
    pool.query('truncate email_sends, webhook_events, delivery_reports, follow_ups cascade; delete from pgboss.job'),
  )
  const one = async (sql: string, values: unknown[] = []) => (await pool.query(sql, values)).rows[0]

  // The statements of the version before, as they were. They stand here by their texts, so that no change of ours reaches them.
  const before = {
    insertEvent: `insert into webhook_events (source, event_id, id_basis, id_signed, type, livemode, occurred_at, status, error, headers, secret_index,
        secret_fingerprint, object_ref, replay_key, body_sha256, body)
      values ('stripe', $1, 'provider', true, 'invoice.paid', true, now(), 'pending', null, '{}', 0, 'ab12cd34', 'in_1', null,
        sha256(convert_to($2, 'utf8')), convert_to($2, 'utf8')) on conflict do nothing returning id`,
    insertJob: `insert into pgboss.job (name, data) select 'process-event', jsonb_build_object('event', $1::text)`,
    insertSend: `insert into email_sends (dedupe_key, state, policy, recipient, message, message_sha256, source_event, requested_by, match_key)
      values ($1, 'queued', 'claim', 'bea@example.com', $2, '\\x00', null, 'token:shop', 'bea@example.com')`,
    findPending: `select id, source, type, livemode, occurred_at, events.received_at, object_ref, headers,
        case when id_basis = 'provider' and right(event_id, 65) = ':' || encode(body_sha256, 'hex') then left(event_id, -65)
          else event_id end as event_id,
        coalesce(events.body, bodies.body) as body
      from webhook_events events left join webhook_bodies bodies on bodies.sha256 = events.body_sha256
      where id = $1 and status = 'pending' and processed_at is null`,
    markProcessed: `update webhook_events set status = $2, processed_at = now(), error = $3
      where id = $1 and status = 'pending' and processed_at is null`,
    claim: `with claimed as (
        update email_sends set state = 'claimed', version = version + 1, claim_token = $2, claimed_at = now(), sending_at = null, send_after = null
        where dedupe_key = $1 and state = any ('{queued,rejected}') and (state <> 'rejected' or send_after is not null)
          and (send_after is null or send_after <= now())
        returning dedupe_key, recipient, match_key, message
      ), attempt as (
        insert into send_attempts (id, dedupe_key, recipient, match_key, number)
        select $2, dedupe_key, recipient, match_key,
          1 + (select coalesce(max(number), 0) from send_attempts earlier where earlier.dedupe_key = claimed.dedupe_key)
        from claimed
      )
      select message, match_key from claimed`,
  }
  const body = '{"id":"evt_1","type":"invoice.paid","livemode":true,"data":{"object":{"id":"in_1"}}}'
  const attempt = '11111111-1111-4111-8111-111111111111'

  test('the events and sends of the version before are worked off, and each email goes out once', async () => {
    const { id } = await one(before.insertEvent, ['evt_1', body])
    await pool.query(before.insertJob, [id])
    await pool.query(before.insertSend, ['asked', JSON.stringify(message('bea@example.com'))])

    expect(await service.drain()).toEqual([])
    expect(await service.drain()).toEqual([])

    expect(await one('select status from webhook_events')).toEqual({ status: 'processed' })
    expect((await pool.query('select dedupe_key, state from email_sends order by dedupe_key')).rows).toEqual([
      { dedupe_key: 'asked', state: 'sent' },
      { dedupe_key: 'receipt:evt_1', state: 'sent' },
    ])
    expect(service.sandbox.ledger.map(({ to }) => to).sort()).toEqual(['ada@example.com', 'bea@example.com'])
  })

  test('the version before takes our events and sends by its own statements, and what it has taken we leave alone', async () => {
    const event = await insertEvent(pool, 'evt_2', { status: 'pending', processed_at: null })
    await queueSend(service, 'ours')
    const calls = service.sandbox.ledger.length

    const found = await one(before.findPending, [event])
    const closed = await pool.query(before.markProcessed, [event, 'processed', null])
    const claimed = await one(before.claim, ['ours', attempt])
    await service.process(event)
    await service.send('ours')

    expect(found).toMatchObject({ id: event, event_id: 'evt_2', type: 'invoice.paid' })
    expect(closed.rowCount).toBe(1)
    expect(claimed).toMatchObject({ match_key: 'ours@example.com' })
    expect(await one(`select state, claim_token from email_sends where dedupe_key = 'ours'`)).toEqual({
      state: 'claimed',
      claim_token: attempt,
    })
    expect(await one(`select count(*)::int from email_sends where dedupe_key like 'receipt:%'`)).toEqual({ count: 0 })
    expect(service.sandbox.ledger.length).toBe(calls)
  })

  test('an event that both versions process at once makes one send', async () => {
    const event = await insertEvent(pool, 'evt_3', { status: 'pending', processed_at: null })
    const [, theirs] = await Promise.all([service.process(event), pool.query(before.markProcessed, [event, 'processed', null])])

    const { count } = await one(`select count(*)::int from email_sends where dedupe_key = 'receipt:evt_3'`)
    expect(count).toBe(theirs.rowCount === 1 ? 0 : 1)
    expect(await one('select status from webhook_events')).toEqual({ status: 'processed' })
  })
})

describe('I21 the counts of redeliveries', async () => {
  const { url, pool } = await testDatabase()
  /** Goes back to before 0014, whatever came after it. */
  const goBack = () =>
    runner({
      databaseUrl: url,
      dir: 'migrations',
      direction: 'down',
      count: readdirSync('migrations').filter((file) => file >= '0014').length,
      migrationsTable: 'oncehook_migrations',
      log: () => undefined,
      logger: { info: () => undefined, warn: () => undefined, error: () => undefined, debug: () => undefined },
    })
  /** As the version before counts. */
  const countAsBefore = (id: string) =>
    pool.query(
      `update webhook_events set redeliveries = redeliveries + 2, benign_variants = benign_variants + 1, last_redelivered_at = now() where id = $1`,
      [id],
    )
  const countsOf = async (id: string) => {
    const { redeliveries, benign_variants, last_redelivered_at } = (await findEvent(pool, id)) ?? {}
    return { redeliveries, benign_variants, isKnown: last_redelivered_at instanceof Date }
  }

  test('move to their table and back; the version before goes on counting in the old place', async () => {
    const again = await insertEvent(pool, 'evt_4')
    const once = await insertEvent(pool, 'evt_5')

    await goBack()
    await countAsBefore(again)
    await migrate(url)
    const moved = [await countsOf(again), await countsOf(once)]
    await countAsBefore(again)
    const beside = await countsOf(again)
    await pool.query('update webhook_redeliveries set redeliveries = redeliveries + 5 where event = $1', [again])
    await goBack()
    const { rows } = await pool.query('select redeliveries, benign_variants from webhook_events order by id')
    await migrate(url)

    expect(moved).toEqual([
      { redeliveries: 2, benign_variants: 1, isKnown: true },
      { redeliveries: 0, benign_variants: 0, isKnown: false },
    ])
    expect(beside).toEqual(moved[0])
    expect(rows).toEqual([
      // The higher of 4 and 7, and of 2 and 1.
      { redeliveries: 7, benign_variants: 2 },
      { redeliveries: 0, benign_variants: 0 },
    ])
    expect(await countsOf(again)).toEqual({ redeliveries: 7, benign_variants: 2, isKnown: true })
  })
})
