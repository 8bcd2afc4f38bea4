import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { verifyInvariantsCommand } from '../src/cli/verify-invariants.ts'
import type { Db } from '../src/db.ts'
import { checkInvariants, checkLedger } from '../src/ops/invariants.ts'
import { decide } from '../src/sends/decide.ts'
import { sendOnce } from '../src/sends/send-once.ts'
import { insertAttempt, insertEvent, insertFollowUp, insertReport, insertSend, insertSettlement } from './support/ops-rows.ts'
import { listen, signed, sources } from './support/posting.ts'
import { message, patientDatabase, queueSend, resetControl } from './support/sends.ts'
import { hexHmac, INBOXILI_SECRET, testService } from './support/service.ts'

const STALE_MS = 300_000
const database = await patientDatabase()
const { pool } = database
const { inboxili: _own, ...others } = sources
const service = await testService(database, {
  sources: others,
  followUps: [
    {
      source: 'generic',
      type: 'paid',
      email: ({ id, to }) => {
        if (to === undefined) throw new Error('nobody to write to')
        return { key: `paid:${id.slice(0, 2)}`, to, from_email: 'billing@example.com', subject: 'Paid', html_body: 'Paid' }
      },
    },
  ],
})
const { sandbox, deps } = service
const { post } = await listen(service.app)

const postGeneric = (event: object) => {
  const body = JSON.stringify(event)
  return post('/webhooks/generic', body, signed.generic(body))
}
const report = async (event: object) => {
  const body = JSON.stringify(event)
  await post('/webhooks/inboxili', body, { 'x-inboxili-signature': hexHmac(body, INBOXILI_SECRET) })
  await service.drain()
}
const resolve = async (key: string, decision: 'sent' | 'abandoned' | 'retry' | 'reopen') => {
  const { rows } = await pool.query<{ version: number }>('select version from email_sends where dedupe_key = $1', [key])
  const by = { version: rows[0]?.version ?? 0, reason: 'tested', actor: 'mia', via: 'test' }
  const request = decision === 'sent' ? { decision, ...by } : { decision, ...by }
  expect((await decide(pool, deps.enqueue, key, request)).outcome).toBe('decided')
}
/** A send whose call ends as armed. */
const sendAs = async (key: string, fault: Parameters<typeof sandbox.arm>[0], policy?: Parameters<typeof queueSend>[3]) => {
  sandbox.arm(fault)
  const queued = await queueSend(service, key, message(`${key.replaceAll(':', '-')}@example.com`), policy)
  expect(queued.outcome).toBe('queued')
  if (queued.outcome === 'queued') await sendOnce(deps, queued.key)
  await resetControl(pool)
}

/** Everything that can become of a send and of an event, by the service itself. */
beforeAll(async () => {
  await sendAs('delivered', { kind: 'ok', messageId: 'm1' })
  await report({ event: 'delivered', message_id: 'm1', timestamp: '2026-11-29T12:00:00.123Z' })
  await sendAs('bounced', { kind: 'ok', messageId: 'm2' })
  await report({ event: 'bounced', message_id: 'm2', type: 'soft' })
  await report({ event: 'bounced', message_id: 'm2', type: 'hard' })
  await report({ event: 'complained', message_id: 'm2' })
  await sendAs('unnamed', { kind: 'null_id' })
  await sendAs('refused', { kind: 'status', status: 422 })
  await sendAs('limited', { kind: 'rate_limited', retryAfter: 0 })
  await sendAs('mended', { kind: 'status', status: 422 })
  await sendAs('mended', { kind: 'ok' })
  await sendAs('unknown', { kind: 'cut_after_accept' })
  await sendAs('settled', { kind: 'cut_after_accept', messageId: 'm3' })
  await report({ event: 'delivered', message_id: 'm3', to: 'settled@example.com' })
  for (const key of ['called-again', 'known', 'given-up', 'reopened', 'waiting']) await sendAs(key, { kind: 'cut_after_accept' })
  await resolve('known', 'sent')
  await resolve('given-up', 'abandoned')
  await resolve('reopened', 'abandoned')
  await resolve('reopened', 'reopen')
  await resolve('waiting', 'retry')
  await resolve('called-again', 'retry')
  await sendOnce(deps, 'called-again')
  await sendAs('doubted', { kind: 'ok' })
  await resolve('doubted', 'reopen')
  await sendAs('otp', { kind: 'status', status: 503 }, 'unguarded')
  await sendAs('welcome:acme:ada', { kind: 'ok' }, 'timestamp')
  await sendAs('alert', { kind: 'cut_after_accept' }, 'prefer_duplicate')
  await pool.query(`update send_attempts set ended_at = now() - interval '1 hour' where dedupe_key = 'alert'`)
  await service.sweep(STALE_MS)
  await sendOnce(deps, 'alert')
  // A worker that died before its call, and one that died in it.
  await insertSend(pool, 'stale-claim', { state: 'queued' })
  const claims = { claim: await insertAttempt(pool, 'stale-claim') }
  await pool.query(
    `update email_sends set state = 'claimed', claim_token = $1, claimed_at = now() - interval '1 hour' where dedupe_key = 'stale-claim'`,
    [claims.claim],
  )
  await insertSend(pool, 'stale-call', { state: 'queued' })
  const call = await insertAttempt(pool, 'stale-call', { outcome: 'in_flight', called_at: new Date() })
  await pool.query(
    `update email_sends set state = 'claimed', claim_token = $1, claimed_at = now() where dedupe_key = 'stale-call'`,
    [call],
  )
  await pool.query(
    `update email_sends set state = 'sending', sending_at = now() - interval '1 hour' where dedupe_key = 'stale-call'`,
  )
  await service.sweep(STALE_MS)

  await postGeneric({ id: 'e1', type: 'paid', to: 'e1@example.com' })
  await postGeneric({ id: 'e1b', type: 'paid', to: 'e1@example.com' })
  await postGeneric({ id: 'e1c', type: 'paid', to: 'somebody-else@example.com' })
  await postGeneric({ id: 'e2', type: 'paid' })
  await postGeneric({ id: 'e3', type: 'unwanted' })
  await post('/webhooks/generic', 'no json', signed.generic('no json'))
  await service.drain()
  await postGeneric({ id: 'e4', type: 'paid', to: 'e4@example.com' })
  await queueSend(service, 'asked-for')
  await sendAs('to-be-repeated', { kind: 'cut_after_accept' })
  await resolve('to-be-repeated', 'retry')
})

describe('a database in which all went as it should', () => {
  test('has every outcome of a send and of an event', async () => {
    const { rows: sends } = await pool.query('select distinct status from email_sends order by 1')
    const { rows: events } = await pool.query('select distinct status from webhook_events order by 1')
    const { rows: calls } = await pool.query('select distinct outcome from send_attempts order by 1')

    expect(sends.map(({ status }) => status)).toEqual([
      'abandoned',
      'bounced',
      'delivered',
      'needs_review',
      'queued',
      'rejected',
      'sent',
    ])
    expect(events.map(({ status }) => status)).toEqual(['failed', 'ignored', 'pending', 'processed', 'quarantined'])
    expect(calls.map(({ outcome }) => outcome)).toEqual(['accepted', 'never_called', 'refused', 'unknown'])
  })

  test('breaks nothing, and agrees with what the email API accepted', async () => {
    expect(await checkInvariants(pool, STALE_MS)).toEqual([])
    expect(await checkLedger(pool, sandbox.ledger)).toEqual([])
    expect(sandbox.ledger.filter(({ accepted }) => accepted).length).toBeGreaterThan(10)
  })

  test('is only read, and nobody waits for it', async () => {
    const client = await pool.connect()
    try {
      await client.query('begin isolation level read committed read only')
      await checkInvariants(client, STALE_MS)
      await checkLedger(client, sandbox.ledger)
      const { rows } = await client.query(
        'select distinct mode from pg_locks where pid = pg_backend_pid() and relation is not null',
      )
      await client.query('rollback')

      expect(rows).toEqual([{ mode: 'AccessShareLock' }])
    } finally {
      client.release()
    }
  })
})

const ago = (seconds: number) => new Date(Date.now() - seconds * 1_000)
const ended = { called_at: new Date(), ended_at: new Date() }
const accepted = { outcome: 'accepted', ...ended }
const unknown = { outcome: 'unknown', ...ended }
const refused = { outcome: 'refused', ...ended }

/** A send and the call that it is about. */
async function insertBoth(db: Db, key: string, send: Record<string, unknown>, call: Record<string, unknown>): Promise<string> {
  await insertSend(db, key, send)
  const attempt = await insertAttempt(db, key, call)
  await db.query('update email_sends set claim_token = $2 where dedupe_key = $1', [key, attempt])
  return attempt
}

/** Each puts one row or two in a state that nothing of ours makes; 'k1' or the answer is what is to be found. */
const plants: [name: string, invariant: string, plant: (db: Db) => Promise<string | undefined>][] = [
  [
    'two calls of one send are open',
    'I1',
    async (db) => {
      await insertBoth(db, 'k1', { state: 'sending' }, { outcome: 'in_flight', called_at: new Date() })
      await insertAttempt(db, 'k1', { number: 2, outcome: 'in_flight', called_at: new Date() })
    },
  ],
  [
    'an open call is not the one that its send is about',
    'I1',
    async (db) => void (await insertBoth(db, 'k1', { state: 'queued' }, { outcome: 'claimed' })),
  ],
  [
    'an open call is not the one that its send is about',
    'I1',
    async (db) => {
      await insertBoth(db, 'k1', { state: 'sent' }, { outcome: 'in_flight', called_at: new Date() })
      await db.query(`update email_sends set settled_by = 'event:1' where dedupe_key = 'k1'`)
      const { rows } = await db.query<{ id: string }>(`select id from send_attempts where dedupe_key = 'k1'`)
      await insertSettlement(db, 'k1', rows[0]?.id ?? '')
    },
  ],
  [
    'a send is being called without an open call',
    'I1',
    async (db) => void (await insertBoth(db, 'k1', { state: 'claimed' }, { outcome: 'never_called', ended_at: new Date() })),
  ],
  [
    'an answer without a call, or a call without an end',
    'I1',
    async (db) => void (await insertBoth(db, 'k1', { state: 'sent' }, { ...accepted, called_at: null })),
  ],
  [
    'an answer without a call, or a call without an end',
    'I1',
    async (db) => void (await insertBoth(db, 'k1', { state: 'sent' }, { ...accepted, ended_at: null })),
  ],
  [
    'a call after an accepted one, without a decision',
    'I1',
    async (db) => {
      await insertBoth(db, 'k1', { state: 'sent' }, { ...accepted, message_id: 'x1' })
      await insertAttempt(db, 'k1', { number: 2, ...accepted, message_id: 'x2' })
    },
  ],
  [
    'a call after its email was settled as sent, without a decision',
    'I1',
    async (db) => {
      const first = await insertBoth(db, 'k1', { state: 'sent' }, { ...refused, claimed_at: new Date(Date.now() - 60_000) })
      await insertSettlement(db, 'k1', first, { to_state: 'sent', at: new Date(Date.now() - 30_000) })
      await insertAttempt(db, 'k1', { number: 2, ...accepted, claimed_at: new Date(Date.now() - 10_000) })
    },
  ],
  [
    'a call after an event had told that its email is out, without a decision',
    'I1',
    async (db) => {
      const sent = { state: 'sent', delivered_at: new Date(Date.now() - 60_000) }
      const first = await insertBoth(db, 'k1', sent, { ...refused, message_id: 'x1', claimed_at: new Date(Date.now() - 60_000) })
      const event = await insertEvent(db, 'x1', { source: 'inboxili' })
      await insertReport(db, event, {
        kind: 'delivered',
        message_id: 'x1',
        attempt: first,
        joined_at: new Date(Date.now() - 30_000),
      })
      await insertAttempt(db, 'k1', { number: 2, ...accepted, claimed_at: new Date(Date.now() - 10_000) })
    },
  ],
  [
    'a call after an unknown one, without a decision',
    'I7',
    async (db) => {
      await insertBoth(db, 'k1', { state: 'sent' }, unknown)
      await insertAttempt(db, 'k1', { number: 2, ...accepted })
    },
  ],
  [
    'a call after an unknown one, without a decision',
    'I7',
    // Decided before the call that ended so.
    async (db) => {
      await db.query(
        `insert into audit_log (actor, via, action, subject, at) values ('mia', 'cli', 'retry', 'send:k1', now() - interval '1 hour')`,
      )
      await insertBoth(db, 'k1', { state: 'sent' }, unknown)
      await insertAttempt(db, 'k1', { number: 2, ...accepted })
    },
  ],
  [
    'a send of unknown outcome waits to be called again, without a decision',
    'I7',
    async (db) => void (await insertBoth(db, 'k1', { state: 'queued' }, unknown)),
  ],
  [
    'a send counts as sent without an accepted call, an event or a person',
    'I7',
    async (db) => void (await insertBoth(db, 'k1', { state: 'sent' }, unknown)),
  ],
  [
    'a send waits for a decision though nothing about it is unknown',
    'I7',
    async (db) => void (await insertBoth(db, 'k1', { state: 'needs_review' }, accepted)),
  ],
  [
    'a send that nobody reviews waits for a decision',
    'I7',
    async (db) => void (await insertBoth(db, 'k1', { state: 'needs_review', policy: 'unguarded' }, unknown)),
  ],
  [
    'a rejected send whose call was not refused',
    'I8',
    async (db) => void (await insertBoth(db, 'k1', { state: 'rejected' }, unknown)),
  ],
  [
    'an event counts as processed though a follow-up of it failed',
    'I6',
    async (db) => {
      const event = await insertEvent(db, 'evt_x')
      await insertFollowUp(db, event, null, { outcome: 'failed', error: 'no' })
      return `event:${event}`
    },
  ],
  [
    'a follow-up that queued an email, without its send',
    'I6',
    async (db) => {
      const event = await insertEvent(db, 'evt_x')
      await insertFollowUp(db, event, null)
      return `event:${event}`
    },
  ],
  [
    'an event failed without a word why',
    'I6',
    async (db) => `event:${await insertEvent(db, 'evt_x', { status: 'failed', processed_at: null })}`,
  ],
  [
    'an event waits that no job will process',
    'I6',
    async (db) =>
      `event:${await insertEvent(db, 'evt_x', { status: 'pending', processed_at: null, received_at: new Date(Date.now() - 600_000) })}`,
  ],
  [
    'a send is due that no job will call',
    'I6',
    async (db) => void (await insertSend(db, 'k1', { state: 'queued', queued_at: ago(601) })),
  ],
  [
    'a send is due that no job will call',
    'I6',
    async (db) =>
      void (await insertBoth(
        db,
        'k1',
        { state: 'rejected', queued_at: ago(3_600), send_after: ago(601) },
        { outcome: 'refused', ...ended },
      )),
  ],
  [
    "a send has the message of somebody else's call",
    'I9',
    async (db) => void (await insertBoth(db, 'k1', { state: 'sent', message_id: 'x1' }, { ...accepted, message_id: 'x2' })),
  ],
  [
    "a settlement names somebody else's call",
    'I9',
    async (db) => {
      await insertBoth(db, 'k1', { state: 'sent' }, accepted)
      await insertSettlement(db, 'k1', await insertBoth(db, 'k2', { state: 'sent' }, accepted))
    },
  ],
  [
    'a delivery event is joined to a call with another message',
    'I9',
    async (db) => {
      const attempt = await insertBoth(db, 'k1', { state: 'sent' }, { ...accepted, message_id: 'x1' })
      const event = await insertEvent(db, 'x2:opened', { source: 'inboxili' })
      await insertReport(db, event, { kind: 'opened', message_id: 'x2', attempt })
      return `event:${event}`
    },
  ],
  [
    'two calls have one message',
    'I10',
    async (db) => {
      await db.query('alter table send_attempts drop constraint send_attempts_one_message')
      await insertBoth(db, 'k1', { state: 'sent' }, { ...accepted, message_id: 'x1' })
      await insertBoth(db, 'k1', { state: 'sent', dedupe_key: 'k2' }, { ...accepted, message_id: 'x1', dedupe_key: 'k2' })
      return 'k1,k2'
    },
  ],
  ...(
    [
      [{ kind: 'delivered' }, {}],
      [{ kind: 'delivered' }, { delivered_at: new Date(Date.now() + 60_000) }],
      [{ kind: 'complained' }, {}],
      [{ kind: 'bounced' }, {}],
      [
        { kind: 'bounced', bounce_kind: 'hard' },
        { bounced_at: new Date(0), bounce_kind: 'soft' },
      ],
      [
        { kind: 'bounced', bounce_kind: 'soft' },
        { bounced_at: new Date(Date.now() + 60_000), bounce_kind: 'soft' },
      ],
    ] as const
  ).map(([said, kept]): (typeof plants)[number] => [
    'what a delivery event says is missing in its send',
    'I12',
    async (db) => {
      const attempt = await insertBoth(db, 'k1', { state: 'sent', ...kept }, { ...accepted, message_id: 'x1' })
      await insertReport(db, await insertEvent(db, 'x1', { source: 'inboxili' }), { ...said, message_id: 'x1', attempt })
    },
  ]),
  [
    'a fact without the event or the settlement that it came from',
    'I12',
    async (db) => void (await insertBoth(db, 'k1', { state: 'sent', delivered_at: new Date() }, accepted)),
  ],
  [
    'a fact without the event or the settlement that it came from',
    'I12',
    // There are a report and a settlement, but they say something else.
    async (db) => {
      const facts = { delivered_at: new Date(0), complained_at: new Date() }
      const attempt = await insertBoth(db, 'k1', { state: 'sent', ...facts }, { ...accepted, message_id: 'x1' })
      await insertReport(db, await insertEvent(db, 'x1', { source: 'inboxili' }), { message_id: 'x1', attempt })
      await insertSettlement(db, 'k1', attempt, { evidence: JSON.stringify({ says: 'delivered' }) })
    },
  ],
  [
    "a person's decision without its audit",
    'I12',
    async (db) => void (await insertBoth(db, 'k1', { state: 'abandoned' }, unknown)),
  ],
  [
    "a person's decision without its audit",
    'I12',
    async (db) => {
      await insertBoth(db, 'k1', { state: 'abandoned' }, unknown)
      await db.query(`insert into audit_log (actor, via, action, subject) values ('person:mia', 'page', 'ask_retry', 'send:k1')`)
    },
  ],
  [
    "a person's decision without its audit",
    'I12',
    async (db) =>
      void (await insertSettlement(db, 'k1', await insertBoth(db, 'k1', { state: 'sent', settled_by: 'person:mia' }, unknown))),
  ],
  [
    'a claim or a call is stale, and no sweep has come by',
    'I13',
    async (db) =>
      void (await insertBoth(db, 'k1', { state: 'claimed', claimed_at: new Date(Date.now() - 400_000) }, { outcome: 'claimed' })),
  ],
  [
    'a claim or a call is stale, and no sweep has come by',
    'I13',
    async (db) =>
      void (await insertBoth(
        db,
        'k1',
        { state: 'sending', sending_at: new Date(Date.now() - 400_000) },
        { outcome: 'in_flight', called_at: new Date() },
      )),
  ],
  ['two decisions on one version of a send', 'I16', async (db) => void (await audits(db, 4, 4))],
  [
    'one of the calls of a send is missing',
    'I20',
    async (db) => void (await insertBoth(db, 'k1', { state: 'sent' }, { number: 2, ...accepted })),
  ],
  [
    'an event whose bytes are still needed has lost them',
    'I20',
    async (db) =>
      `event:${await insertEvent(db, 'evt_x', { status: 'failed', error: 'no', processed_at: null, body: null, body_emptied_at: new Date() })}`,
  ],
  [
    'an event whose bytes are still needed has lost them',
    'I20',
    async (db) => `event:${await insertEvent(db, 'evt_x', { body: null })}`,
  ],
  [
    'a mark names a send that is not there',
    'I20',
    async (db) => void (await db.query(`insert into email_marks (kind, recipient, dedupe_key) values ('welcome', 'x', 'k1')`)),
  ],
  [
    'a mark does not know that its send has gone out',
    'I12',
    async (db) => {
      await insertBoth(db, 'k1', { state: 'sent', policy: 'timestamp' }, accepted)
      await db.query(`insert into email_marks (kind, recipient, dedupe_key) values ('welcome', 'x', 'k1')`)
    },
  ],
  [
    'a send has gone out without its mark',
    'I12',
    async (db) => void (await insertBoth(db, 'k1', { state: 'sent', policy: 'timestamp' }, accepted)),
  ],
]

/** Decisions on these versions of k1. */
async function audits(db: Db, ...versions: number[]): Promise<void> {
  for (const version of versions)
    await db.query(
      `insert into audit_log (actor, via, action, subject, before) values ('mia', 'cli', 'sent', 'send:k1', jsonb_build_object('version', $1::int))`,
      [version],
    )
}

/** What is found with something planted, which is gone afterwards. Triggers and foreign keys don't act meanwhile. */
async function withPlanted<Planted, Found>(plant: (db: Db) => Promise<Planted>, look: (db: Db) => Promise<Found>) {
  const client = await pool.connect()
  try {
    await client.query('begin')
    await client.query('set local session_replication_role = replica')
    const planted = await plant(client)
    return { planted, found: await look(client) }
  } finally {
    await client.query('rollback')
    client.release()
  }
}

describe('a planted violation is found, and nothing else', () => {
  test.each(plants)('%s (%s)', async (name, invariant, plant) => {
    const { planted, found } = await withPlanted(plant, (db) => checkInvariants(db, STALE_MS))

    const subjects = (planted || 'k1').split(',')
    expect(found).toEqual([{ name, invariant, count: subjects.length, subjects }])
  })

  test('every check is planted', async () => {
    const { checks } = await import('../src/ops/invariant-checks.ts')

    expect([...new Set(plants.map(([name]) => name))].sort()).toEqual(
      checks
        .map(({ name }) => name)
        .filter((name) => !name.startsWith('more than 120 calls'))
        .sort(),
    )
  })

  test.each([
    ['claimed', 'claimed_at', { outcome: 'claimed' }],
    ['sending', 'sending_at', { outcome: 'in_flight', called_at: new Date() }],
  ])('I13 one that is %s is stale after the time set and two sweeps, and not before', async (state, column, call) => {
    const since = (ms: number) => async (db: Db) => {
      await insertBoth(db, 'k1', { state }, call)
      await db.query(`update email_sends set ${column} = now() - $1 * interval '1 ms'`, [ms])
    }
    const look = (db: Db) => checkInvariants(db, STALE_MS)

    expect((await withPlanted(since(390_000), look)).found).toEqual([])
    expect((await withPlanted(since(390_001), look)).found).toMatchObject([{ invariant: 'I13' }])
  })

  test.each<[string, (db: Db) => Promise<unknown>]>([
    ['for less than ten minutes', (db) => insertSend(db, 'k1', { queued_at: ago(590) })],
    ['since it was put off', (db) => insertSend(db, 'k1', { queued_at: ago(3_600), send_after: ago(590) })],
    ['while sending is held', (db) => db.query(`update sending_control set held_reason = 'x', held_at = now()`)],
    ['and has its job', (db) => db.query(`insert into pgboss.job (name, data) values ('send', '{"key": "k0"}')`)],
    [
      'and had its job a moment ago',
      (db) =>
        db.query(`insert into pgboss.job (name, data, state, completed_on) values ('send', '{"key": "k0"}', 'completed', now())`),
    ],
  ])('I6 a send may wait %s', async (what, plant) => {
    const { found } = await withPlanted(
      async (db) => {
        await plant(db)
        if (/held|job/.test(what)) await insertSend(db, 'k0', { queued_at: ago(601) })
      },
      (db) => checkInvariants(db, STALE_MS),
    )

    expect(found).toEqual([])
  })

  test('what a person has reopened may wait for a decision, and may have lost its mark', async () => {
    const { found } = await withPlanted(
      async (db) => {
        await insertBoth(db, 'k1', { state: 'needs_review', policy: 'unguarded' }, unknown)
        await insertBoth(db, 'k2', { state: 'sent', policy: 'timestamp' }, accepted)
        await db.query(
          `insert into audit_log (actor, via, action, subject) select 'mia', 'cli', 'reopen', unnest('{send:k1,send:k2}'::text[])`,
        )
      },
      (db) => checkInvariants(db, STALE_MS),
    )

    expect(found).toEqual([])
  })

  const calls = (times: number) => async (db: Db) => {
    const from = Date.now() - 3_600_000
    for (let call = 0; call < times; call += 1)
      await insertBoth(db, `c${call}`, { state: 'sent' }, { ...accepted, called_at: new Date(from + call * 490) })
    return new Date(from + 120 * 490).toISOString()
  }

  test('more than 120 calls within 60 s (I14)', async () => {
    const { planted, found } = await withPlanted(calls(121), (db) => checkInvariants(db, STALE_MS))
    const { found: as_allowed } = await withPlanted(calls(120), (db) => checkInvariants(db, STALE_MS))

    expect(found).toEqual([{ name: 'more than 120 calls within 60 s', invariant: 'I14', count: 1, subjects: [planted] }])
    expect(as_allowed).toEqual([])
  })

  test('decisions on two versions are none, and of many only 20 are named', async () => {
    const { found: two } = await withPlanted(
      (db) => audits(db, 4, 5),
      (db) => checkInvariants(db, STALE_MS),
    )
    const many = async (db: Db) => {
      for (let number = 10; number < 35; number += 1) await insertBoth(db, `k${number}`, { state: 'needs_review' }, accepted)
    }
    const { found } = await withPlanted(many, (db) => checkInvariants(db, STALE_MS))

    expect(two).toEqual([])
    expect(found).toMatchObject([{ count: 25 }])
    expect(found[0]?.subjects).toHaveLength(20)
  })

  test('an email that was accepted twice for one call, and one that went to somebody else', async () => {
    const delivered = sandbox.ledger.find(({ messageId }) => messageId === 'm1')
    const of = (to: string, messageId: string) => ({ to, messageId, accepted: true })

    expect(await checkLedger(pool, [...sandbox.ledger, of(delivered?.to ?? '', 'm9')])).toEqual([
      { name: 'more emails were accepted than calls may have made', invariant: 'I1', count: 1, subjects: ['delivered'] },
    ])
    expect(await checkLedger(pool, [of('stranger@example.com', 'm9'), of('refused@example.com', 'm8')])).toEqual([
      { name: 'more emails were accepted than calls may have made', invariant: 'I1', count: 2, subjects: ['no send', 'refused'] },
    ])
    expect(await checkLedger(pool, [of('bounced@example.com', 'm1')])).toEqual([
      { name: 'a call has the message that somebody else was sent', invariant: 'I9', count: 1, subjects: ['delivered'] },
    ])
    expect(await checkLedger(pool, [{ to: 'delivered@example.com', messageId: null, accepted: false }])).toEqual([])
  })
})

describe('oncehook verify-invariants', () => {
  const verify = (options = {}, db: Db = pool) => verifyInvariantsCommand(db, STALE_MS, options)

  test('ends with 0 where all holds, 1 with what is broken, and 2 for an address that is none', async () => {
    const good = await verify({ ledger: sandbox.url })
    const { found: bad } = await withPlanted(
      (db) => insertBoth(db, 'k\u001b1', { state: 'sent' }, unknown),
      (db) => verify({}, db),
    )
    const { found: json } = await withPlanted(
      (db) => audits(db, 4, 4),
      (db) => verify({ json: true }, db),
    )

    expect(good).toEqual({ stdout: 'Everything that must hold does.\n', stderr: '', exitCode: 0 })
    expect(bad).toEqual({
      stdout: 'I7  a send counts as sent without an accepted call, an event or a person: 1\n    k<U+001B>1\n',
      stderr: '',
      exitCode: 1,
    })
    expect(JSON.parse(json.stdout)).toEqual({
      violations: [{ name: 'two decisions on one version of a send', invariant: 'I16', count: 1, subjects: ['k1'] }],
    })
    expect(await verify({ ledger: 'file:///etc/passwd' })).toMatchObject({ stdout: '', exitCode: 2 })
  })

  test('reads the ledger of the address given', async () => {
    const ledger = { calls: [{ to: 'stranger@example.com', accepted: true, messageId: null, atMs: 1 }], reports: [] }
    const server = createServer((req, res) =>
      res.writeHead(req.url === '/_sandbox/ledger' ? 200 : 404).end(JSON.stringify(ledger)),
    ).listen(0, '127.0.0.1')
    onTestFinished(() => void server.close())
    await once(server, 'listening')
    const { port } = server.address() as AddressInfo

    expect(await verify({ ledger: `http://127.0.0.1:${port}` })).toMatchObject({
      stdout: 'I1  more emails were accepted than calls may have made: 1\n    no send\n',
      exitCode: 1,
    })
  })
})
