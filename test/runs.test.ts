import express from 'express'
import supertest from 'supertest'
import { beforeEach, describe, expect, test, vi } from 'vitest'
import { readConfig, type UserConfig } from '../src/config.ts'
import type { Db, Tx } from '../src/db.ts'
import {
  continueRuns,
  findRun,
  oneForecastAtATime,
  planRun,
  type RunDeps,
  type RunFilter,
  startRun,
  stopRun,
} from '../src/events/runs.ts'
import { emptyOldBodies } from '../src/events/sweeps.ts'
import { forecastReplay } from '../src/follow-ups/forecast.ts'
import { openJobs } from '../src/follow-ups/queue.ts'
import { isWanted } from '../src/follow-ups/rules.ts'
import { createLog } from '../src/log.ts'
import { checkInvariants } from '../src/ops/invariants.ts'
import { opsRoutes } from '../src/ops/routes.ts'
import { createToken } from '../src/ops/tokens.ts'
import { holdToDeclarations } from './support/declared.ts'
import { withProvider } from './support/made-up.ts'
import { insertEvent, insertSend } from './support/ops-rows.ts'
import { sources as allSources, emptyTables, listen, signed } from './support/posting.ts'
import { patientDatabase, resetControl } from './support/sends.ts'
import { testService } from './support/service.ts'

const { inboxili: _own, ...sources } = allSources
const email = (id: string) => ({
  key: `paid:${id}`,
  to: `${id}@example.com`,
  from_email: 'billing@example.com',
  subject: 'Paid',
  html_body: 'Paid',
})
const followUps: UserConfig['followUps'] = [{ source: 'generic', type: 'paid', email: ({ id }) => email(id) }]

const database = await patientDatabase()
const { pool } = database
const service = await testService(database, { sources, followUps })
const { post } = await listen(service.app)
const jobs = await openJobs(database.url)
const deps: RunDeps = {
  pool,
  recorder: service.recorder,
  config: () => service.config.current,
  isWanted: (source, type) => isWanted(service.config.current, source, type),
  enqueueEvents: jobs.enqueueEvents,
  forecast: (events) => forecastReplay(pool, service.config.current, events, 10_000),
}
const configure = (config: UserConfig) => {
  const { inboxili } = allSources
  service.config.current = readConfig({ ...config, sources: { inboxili, ...config.sources } })
}

beforeEach(async () => {
  await emptyTables(database)
  await pool.query('truncate runs, email_marks')
  await resetControl(pool)
  configure({ sources, followUps })
})

const closed = ['processed', 'ignored', 'failed']
const plan = (filter: Partial<RunFilter> = {}, withForecast = false) =>
  planRun(deps, { status: closed, ...filter }, withForecast, 'mia')
const start = (id: string) => startRun(deps, id, 'mia', 'test')
const postGeneric = (event: object | string) => {
  const body = typeof event === 'string' ? event : JSON.stringify(event)
  return post('/webhooks/generic', body, signed.generic(body))
}
/** Closed events of source generic that a rule wants, whose emails nobody has asked for. */
async function storeEvents(count: number, status = 'ignored'): Promise<void> {
  await pool.query(
    `insert into webhook_events (source, event_id, id_basis, id_signed, type, body, body_sha256, headers, status, processed_at)
     select 'generic', 'n' || number, 'provider', true, 'paid', body, sha256(body), '{}', $2, now()
     from generate_series(1, $1) as number, lateral (select convert_to('{"id":"n' || number || '","type":"paid"}', 'UTF8') as body) bodies`,
    [count, status],
  )
}
const countJobs = async () =>
  (await pool.query(`select count(*)::int as count from pgboss.job where name = 'process-event'`)).rows[0].count
const statusOf = async (eventId: string) =>
  (await pool.query('select status from webhook_events where event_id = $1', [eventId])).rows[0]?.status
const auditsOf = async (id: string) =>
  (await pool.query(`select actor, via, action, after from audit_log where subject = $1 order by id`, [`run:${id}`])).rows

describe('a plan', () => {
  test('says what would come of each event and of each email, and changes nothing', async () => {
    const confirm = vi.fn(async (payload: unknown) => payload)
    const rules: UserConfig['followUps'] = [
      {
        source: 'generic',
        type: ['paid', 'both'],
        email: ({ id, to }) => ({ ...email(id.slice(0, 2)), ...(to && { to }) }),
      },
      { source: 'generic', type: 'nothing', email: () => undefined },
      {
        source: 'generic',
        type: ['throws', 'both'],
        email: () => {
          throw new Error('no')
        },
      },
      {
        source: 'generic',
        type: 'marked',
        email: ({ id }) => ({ ...email(id), key: `hi:${id}`, to: 'x@example.com', policy: 'timestamp' }),
      },
      { source: 'github', type: 'push', email: () => email('never') },
    ]
    configure({ sources: { ...sources, github: { ...sources.github, confirm } }, followUps: rules })
    for (const [id, type] of Object.entries({ a1: 'paid', a1b: 'paid', b1: 'nothing', c1: 'throws', d1: 'both', e1: 'unwanted' }))
      await postGeneric({ id, type })
    await postGeneric({ id: 'a1c', type: 'paid', to: 'somebody-else@example.com' })
    for (const id of ['f1', 'f2', 'f3']) await postGeneric({ id, type: 'paid', to: `${id}@example.com` })
    for (const id of ['m1', 'm2', 'm3']) await postGeneric({ id, type: 'marked' })
    await postGeneric('no json')
    await post('/webhooks/github', '{}', signed.github('{}', 'g1'))
    await insertEvent(pool, 'm1:delivered', { source: 'inboxili', type: 'delivered' })
    await insertEvent(pool, 'gone', { source: 'gone' })
    await insertEvent(pool, 'emptied', { source: 'generic', body: null, body_emptied_at: new Date(), headers: '{}' })
    await insertEvent(pool, 'bad', { source: 'generic', id_basis: 'body_hash', type: null, status: 'processed' })
    await pool.query(
      `update webhook_events set status = 'failed', error = 'waited', processed_at = null where status = 'pending'`,
    )
    await insertSend(pool, 'paid:f1', { state: 'sent', recipient: 'F1@Example.com', delivered_at: new Date() })
    await insertSend(pool, 'paid:f2', { state: 'needs_review', recipient: 'f2@example.com' })
    await insertSend(pool, 'paid:f3', { state: 'rejected', recipient: 'f3@example.com' })
    await insertSend(pool, 'paid:d1', { state: 'abandoned', recipient: 'stranger@example.com' })
    const tables = async () =>
      (
        await pool.query(`select (select json_agg(e order by id) from webhook_events e)::text as events,
      (select json_agg(s order by dedupe_key) from email_sends s)::text as sends, (select count(*) from follow_ups) as follow_ups,
      (select count(*) from pgboss.job) as jobs, (select count(*) from email_marks) as marks, (select count(*) from audit_log) as audits`)
      ).rows[0]
    const before = await tables()

    const planned = await plan({ status: [...closed, 'quarantined'] }, true)

    expect(planned).toMatchObject({
      state: 'planned',
      events: 19,
      done: 0,
      created_by: 'mia',
      started_at: null,
      next_since: null,
    })
    expect(planned.forecast).toEqual({
      events: {
        wants_emails: 9,
        no_email: 1,
        fails: 2,
        no_rule: 2,
        needs_confirm: 1,
        settles: 1,
        read_anew: 1,
        source_gone: 1,
        emptied: 1,
      },
      // a1 (and a1b), f3 and the first of the marked ones; the second recipient of a1, and that of d1.
      emails: { would_send: 3, key_taken: 2, held: { delivered: 1, needs_review: 1, queued: 2 } },
    })
    expect(confirm).not.toHaveBeenCalled()
    expect(await tables()).toEqual(before)
  })

  test('of policy timestamp looks at who has the mark', async () => {
    const marked = (id: string) => ({ ...email(id), key: `hi:${id}`, policy: 'timestamp' as const })
    configure({ sources, followUps: [{ source: 'generic', type: 'paid', email: ({ id }) => marked(id) }] })
    await storeEvents(3)
    await insertSend(pool, 'hi:old1', { state: 'sent', delivered_at: new Date() })
    await insertSend(pool, 'hi:old2', { state: 'rejected' })
    await insertSend(pool, 'hi:n3', { state: 'rejected', recipient: 'n3@example.com', send_after: new Date() })
    await pool.query(
      `insert into email_marks values ('hi', 'n1@example.com', 'hi:old1', now()), ('hi', 'n2@example.com', 'hi:old2', null),
         ('hi', 'n3@example.com', 'hi:n3', null)`,
    )

    expect((await plan({}, true)).forecast).toMatchObject({ emails: { would_send: 2, held: { delivered: 1 } } })
  })

  test('takes the events that match, whatever comes later', async () => {
    const at = (hour: number) => new Date(Date.UTC(2026, 10, 29, hour))
    for (const [id, columns] of Object.entries({
      x1: { received_at: at(10) },
      x2: { received_at: at(11) },
      x3: { received_at: at(12) },
      y1: { received_at: at(11), type: 'other' },
      z1: { received_at: at(11), source: 'github' },
      q1: { received_at: at(11), status: 'quarantined', processed_at: null, error: 'a person has to look' },
      p1: { received_at: at(11), status: 'pending', processed_at: null },
    }))
      await insertEvent(pool, id, { source: 'generic', type: 'paid', ...columns })
    const matching = async (filter: Partial<RunFilter>) => {
      const { id } = await plan(filter)
      const { rows } = await pool.query(
        `select event_id from runs, unnest(events) with ordinality as taken (event, number) join webhook_events on webhook_events.id = event
         where runs.id = $1 order by number`,
        [id],
      )
      return rows.map(({ event_id }) => event_id)
    }

    expect(await matching({})).toEqual(['x1', 'x2', 'y1', 'z1', 'x3'])
    expect(await matching({ source: 'generic', type: 'paid' })).toEqual(['x1', 'x2', 'x3'])
    expect(await matching({ source: 'generic', since: at(11), until: at(12) })).toEqual(['x2', 'y1'])
    expect(await matching({ event_ids: ['x3', 'z1', 'nowhere'] })).toEqual(['z1', 'x3'])
    expect(await matching({ status: ['quarantined'] })).toEqual(['q1'])
  })

  test('holds 10,000 events at most, and says where the next one begins', async () => {
    await storeEvents(10_002)
    await pool.query(
      `update webhook_events set received_at = '2026-11-29T00:00:00Z'::timestamptz + substr(event_id, 2)::int * interval '1 s'`,
    )

    const first = await plan()
    const second = await plan({ since: first.next_since ?? undefined })

    expect([first.events, first.next_since?.toISOString()]).toEqual([10_000, '2026-11-29T02:46:41.000Z'])
    expect([second.events, second.next_since]).toEqual([2, null])
  })

  test('leaves out the youngest although rows are numbered only nearly in the order of time', async () => {
    await storeEvents(10_002)
    // Each 32 of them the other way round.
    await pool.query(
      `update webhook_events set received_at = '2026-11-29T00:00:00Z'::timestamptz + (substr(event_id, 2)::int # 31) * interval '1 s'`,
    )

    const first = await plan()
    const second = await plan({ since: first.next_since ?? undefined })

    expect([first.events, first.next_since?.toISOString()]).toEqual([10_000, '2026-11-29T02:46:54.000Z'])
    expect([second.events, second.next_since]).toEqual([2, null])
  })

  test.each<Partial<RunFilter>>([
    { status: ['ignored'] },
    { status: ['ignored', 'ignored', 'failed'] },
    { type: 'paid' },
    { source: 'generic' },
    { source: 'generic', type: 'paid' },
    { event_ids: ['n3', 'n1', 'n2'] },
    { since: new Date(0) },
    { until: new Date('2999-01-01T00:00:00Z') },
  ])('takes each event once, whichever way it is found: %j', async (filter) => {
    await storeEvents(3)
    for (const id of ['p1', 'p2']) await insertEvent(pool, id, { source: 'generic', status: 'pending', processed_at: null })
    await insertEvent(pool, 'q1', { source: 'generic', status: 'quarantined', processed_at: null, error: 'a person has to look' })

    expect((await plan(filter)).events).toBe(3)
  })

  test('counts as not looked at what time does not suffice for', async () => {
    configure({ sources, followUps: [{ source: 'generic', type: 'paid', email: () => new Promise(() => undefined) }] })
    await storeEvents(5)
    const { rows } = await pool.query<{ id: string }>('select id from webhook_events')

    const forecast = await forecastReplay(
      pool,
      service.config.current,
      rows.map(({ id }) => id),
      20,
    )

    expect(forecast).toEqual({ events: { not_looked_at: 5 }, emails: { would_send: 0, key_taken: 0, held: {} } })
  })

  test('counts what can not even be read, and does without what storage does not give', async () => {
    await storeEvents(1)
    service.config.current = withProvider(service.config.current, 'generic', {
      events: () => {
        throw new Error('unreadable')
      },
    })
    const { rows } = await pool.query<{ id: string }>('select id from webhook_events')
    const gone = { query: () => Promise.reject(Object.assign(new Error('gone'), { code: '57P01' })) }
    const forecast = (db: Db) =>
      forecastReplay(
        db,
        service.config.current,
        rows.map(({ id }) => id),
        10_000,
      )

    expect(await forecast(pool)).toMatchObject({ events: { fails: 1 } })
    await expect(forecast(gone)).rejects.toThrow('gone')
  })

  test('can be carried out for 15 minutes', async () => {
    await storeEvents(2)
    const late = await plan()
    const stopped = await plan()
    await pool.query(`update runs set expires_at = expires_at - interval '15 minutes' where id = $1`, [late.id])
    await stopRun(pool, stopped.id, 'mia', 'test')

    expect(await start(late.id)).toBeUndefined()
    expect(await start('4dd2f0f4-6d4c-4e1c-8d6a-2c1f2c1b8a11')).toBeUndefined()
    expect(await start(stopped.id)).toMatchObject({ state: 'stopped', queued: 0 })
    expect(await countJobs()).toBe(0)
    await plan()
    expect(await findRun(pool, late.id)).toBeUndefined()
  })
})

describe('a run', () => {
  test('of few events is carried out at once, and only once', async () => {
    await storeEvents(3)
    const { id } = await plan({ source: 'generic' }, true)

    const run = await start(id)
    const again = await start(id)
    expect(await service.drain()).toEqual([])
    const afterwards = await start(id)

    expect(run).toMatchObject({ state: 'done', events: 3, done: 3, queued: 3, read_anew: 0, statuses: { pending: 3 } })
    expect(again).toEqual(run)
    expect(afterwards).toMatchObject({ state: 'done', queued: 3, statuses: { processed: 3 } })
    expect(await countJobs()).toBe(3)
    expect((await pool.query('select dedupe_key, state from email_sends order by 1')).rows).toEqual([
      { dedupe_key: 'paid:n1', state: 'sent' },
      { dedupe_key: 'paid:n2', state: 'sent' },
      { dedupe_key: 'paid:n3', state: 'sent' },
    ])
    expect(await auditsOf(id)).toEqual([
      {
        actor: 'mia',
        via: 'test',
        action: 'replay',
        after: {
          filter: { source: 'generic', status: closed },
          events: 3,
          forecast: { events: { wants_emails: 3 }, emails: { would_send: 3, key_taken: 0, held: {} } },
        },
      },
    ])
  })

  test('of none is done', async () => {
    expect(await start((await plan()).id)).toMatchObject({ state: 'done', events: 0 })
  })

  test('of many is carried out in batches by whoever comes by, and can be stopped in between', async () => {
    await storeEvents(650)
    const { id } = await plan()
    const states = [await start(id)]
    for (let tick = 0; tick < 2; tick += 1) {
      await continueRuns(deps)
      states.push(await findRun(pool, id))
    }

    const stopped = await stopRun(pool, id, 'noa', 'test')
    const more = await continueRuns(deps)
    const again = await stopRun(pool, id, 'zoe', 'test')

    expect(states.map((run) => [run?.state, run?.done, run?.queued])).toEqual([
      ['running', 0, 0],
      ['running', 200, 200],
      ['running', 400, 400],
    ])
    expect(stopped).toMatchObject({ state: 'stopped', done: 400, stopped_by: 'noa', statuses: { pending: 400 } })
    expect([more, again]).toEqual([0, stopped])
    expect(await countJobs()).toBe(400)
    expect((await auditsOf(id)).map(({ actor, action, after }) => [actor, action, after.queued])).toEqual([
      ['mia', 'replay', undefined],
      ['noa', 'stop replay', 400],
    ])
  })

  test('ends as done with its last batch, and can not be stopped then', async () => {
    await storeEvents(401)
    const { id } = await plan()
    await start(id)
    const batches = [await continueRuns(deps), await continueRuns(deps), await continueRuns(deps), await continueRuns(deps)]

    expect(batches).toEqual([1, 1, 1, 0])
    expect(await stopRun(pool, id, 'noa', 'test')).toMatchObject({ state: 'done', done: 401, queued: 401, stopped_by: null })
  })

  test('leaves alone what waits already, and what retention has emptied', async () => {
    await storeEvents(3)
    const { id } = await plan()
    await service.replay((await pool.query(`select id from webhook_events where event_id = 'n1'`)).rows[0].id)
    await pool.query(`update webhook_events set received_at = now() - interval '91 days' where event_id = 'n2'`)
    await emptyOldBodies(pool, 90)

    expect(await start(id)).toMatchObject({ state: 'done', done: 3, queued: 1, statuses: { ignored: 1, pending: 2 } })
    expect(await countJobs()).toBe(2)
  })

  test('of quarantined events reads them anew, and lets those through that a person had to look at', async () => {
    await postGeneric('{"ref":"r1","kind":"paid"}')
    await postGeneric('no json')
    await storeEvents(1, 'quarantined')
    configure({ sources: { ...sources, generic: { ...sources.generic, id: 'ref', type: 'kind' } }, followUps })

    const run = await start((await plan({ status: ['quarantined'] })).id)
    await service.drain()

    expect(run).toMatchObject({ state: 'done', events: 3, done: 3, queued: 1, read_anew: 1 })
    expect([await statusOf('r1'), await statusOf('n1')]).toEqual(['processed', 'processed'])
    expect((await pool.query(`select count(*)::int as count from webhook_events where status = 'quarantined'`)).rows).toEqual([
      { count: 1 },
    ])
  })

  test('asked for by many at once begins once', async () => {
    await storeEvents(150)
    const { id } = await plan()

    const runs = await Promise.all(Array.from({ length: 10 }, () => start(id)))
    await continueRuns(deps)

    expect(new Set(runs.map((run) => run?.id))).toEqual(new Set([id]))
    expect(await findRun(pool, id)).toMatchObject({ state: 'done', done: 150, queued: 150 })
    expect([await countJobs(), (await auditsOf(id)).length]).toEqual([150, 1])
  })

  test('stopped by one while others carry it out has gone through what it says, and no more', async () => {
    await storeEvents(1_000)
    const { id } = await plan()
    await start(id)

    await Promise.all([
      ...Array.from({ length: 6 }, () => continueRuns(deps)),
      stopRun(pool, id, 'noa', 'test'),
      ...Array.from({ length: 6 }, () => continueRuns(deps)),
    ])

    const run = await findRun(pool, id)
    expect(run?.state).toBe('stopped')
    expect(run?.queued).toBe(run?.done)
    expect(await countJobs()).toBe(run?.queued)
    expect((await auditsOf(id)).at(-1)?.after.queued).toBe(run?.queued)
  })

  test('I1 together with another one, redeliveries and several workers sends each email once', async () => {
    await Promise.all(Array.from({ length: 60 }, (_, number) => postGeneric({ id: `w${number}`, type: 'paid' })))
    const callsBefore = service.sandbox.ledger.length
    // Half of them have been sent before; of one the answer was lost, of one it was a refusal.
    service.sandbox.arm({ kind: 'cut_after_accept' })
    service.sandbox.arm({ kind: 'status', status: 422 })
    const { rows: first } = await pool.query<{ id: string }>(`select id from webhook_events order by id limit 30`)
    for (const { id } of first) await service.process(id)
    const { rows: asked } = await pool.query<{ dedupe_key: string }>('select dedupe_key from email_sends')
    for (const { dedupe_key } of asked) await service.send(dedupe_key)
    await pool.query(`update webhook_events set status = 'ignored', processed_at = now() where status = 'pending'`)
    await storeEvents(160)
    const plans = [await plan({ source: 'generic' }), await plan({ type: 'paid' })]

    const worker = async () => {
      for (let round = 0; round < 3; round += 1) {
        await continueRuns(deps)
        await service.drain()
      }
    }
    await Promise.all([
      ...plans.flatMap(({ id }) => [start(id), start(id)]),
      ...Array.from({ length: 60 }, (_, number) => postGeneric({ id: `w${number}`, type: 'paid' })),
      worker(),
      worker(),
      worker(),
    ])
    while ((await continueRuns(deps)) > 0) await service.drain()
    expect(await service.drain()).toEqual([])

    const runs = await Promise.all(plans.map(({ id }) => findRun(pool, id)))
    expect(runs.map((run) => [run?.state, run?.done])).toEqual([
      ['done', 220],
      ['done', 220],
    ])
    const { rows: sends } = await pool.query(`select state, count(*)::int as count from email_sends group by 1 order by 1`)
    expect(sends).toEqual([
      { state: 'needs_review', count: 1 },
      { state: 'sent', count: 219 },
    ])
    const times = Map.groupBy(
      service.sandbox.ledger.slice(callsBefore).filter(({ accepted }) => accepted),
      ({ to }) => to,
    )
    expect([times.size, [...times.values()].filter((calls) => calls.length > 1)]).toEqual([220, []])
    // No test has a rate limit.
    expect((await checkInvariants(pool, 300_000)).filter(({ invariant }) => invariant !== 'I14')).toEqual([])
  })
})

describe('a crash', () => {
  test('in the middle of a batch leaves it to the next, and no event is queued twice', async () => {
    await storeEvents(250)
    const { id } = await plan()
    await start(id)
    const breaking: RunDeps = {
      ...deps,
      enqueueEvents: async (tx: Tx, events) => {
        await jobs.enqueueEvents(tx, events)
        throw new Error('the worker died')
      },
    }

    await expect(continueRuns(breaking)).rejects.toThrow('the worker died')
    const halfway = await findRun(pool, id)
    const jobsHalfway = await countJobs()
    await continueRuns(deps)
    await continueRuns(deps)

    expect([halfway?.state, halfway?.done, halfway?.queued, jobsHalfway]).toEqual(['running', 0, 0, 0])
    expect(await findRun(pool, id)).toMatchObject({ state: 'done', done: 250, queued: 250 })
    expect(await countJobs()).toBe(250)
  })

  test('of who asked for it, after the plan was taken, leaves it to a worker', async () => {
    await storeEvents(5)
    const { id } = await plan()
    const breaking: RunDeps = { ...deps, enqueueEvents: () => Promise.reject(new Error('the process died')) }

    await expect(startRun(breaking, id, 'mia', 'test')).rejects.toThrow('the process died')
    const taken = await findRun(pool, id)
    await continueRuns(deps)

    expect(taken).toMatchObject({ state: 'running', done: 0 })
    expect(await findRun(pool, id)).toMatchObject({ state: 'done', queued: 5 })
    expect(await auditsOf(id)).toHaveLength(1)
  })

  test('of one run keeps no other from going on', async () => {
    await storeEvents(250)
    await pool.query(`update webhook_events set source = 'github' where event_id = 'n1'`)
    const [bad, good] = [await plan({ source: 'github' }), await plan({ source: 'generic' })]
    await pool.query(`update runs set state = 'running', started_at = now(), started_by = 'mia', via = 'test'`)
    const breaking: RunDeps = {
      ...deps,
      enqueueEvents: (tx, events) =>
        events.length === 1 ? Promise.reject(new Error('only this one')) : jobs.enqueueEvents(tx, events),
    }

    await expect(continueRuns(breaking)).rejects.toThrow('only this one')

    expect([(await findRun(pool, bad.id))?.done, (await findRun(pool, good.id))?.done]).toEqual([0, 200])
  })
})

describe('the API', async () => {
  const tokens = {
    reader: await createToken(pool, { name: 'grafana', role: 'reader' }),
    operator: await createToken(pool, { name: 'mia', role: 'operator' }),
    sender: await createToken(pool, { name: 'shop', role: 'sender' }),
  }
  const isDeclared = holdToDeclarations()
  const app = (runs: RunDeps) =>
    express().use(
      isDeclared,
      opsRoutes({
        pool,
        reads: pool,
        log: createLog('silent', 'test'),
        enqueueSends: jobs.enqueueSends,
        config: deps.config,
        fingerprints: () => [],
        replay: async () => ({ outcome: 'not_found' }),
        runs,
      }),
    )
  const shared = app(deps)
  const ask = (body: unknown, on = shared, by: keyof typeof tokens = 'operator') =>
    supertest(on)
      .post('/v1/replay')
      .set('authorization', `Bearer ${tokens[by]}`)
      .send(body as object)
  const get = (path: string, by: keyof typeof tokens = 'reader') =>
    supertest(shared).get(path).set('authorization', `Bearer ${tokens[by]}`)
  const stop = (id: string, by: keyof typeof tokens = 'operator') =>
    supertest(shared).post(`/v1/runs/${id}/stop`).set('authorization', `Bearer ${tokens[by]}`)

  test('plans, carries out, and tells how far it is', async () => {
    await storeEvents(2)

    const planned = await ask({ filter: { source: 'generic', since: '24h' }, dry_run: true })
    const before = await get(`/v1/runs/${planned.body.plan}`)
    const started = await ask({ plan: planned.body.plan })
    const after = await get(`/v1/runs/${planned.body.plan}`)
    const direct = await ask({ filter: { event_ids: ['n1'], status: ['ignored'] }, dry_run: false })

    expect([planned.status, planned.body.id]).toEqual([200, planned.body.plan])
    expect(planned.body).toMatchObject({
      state: 'planned',
      events: 2,
      forecast: { emails: { would_send: 2 } },
      created_by: 'token:mia',
    })
    expect(before.body).toMatchObject({ state: 'planned', queued: 0 })
    expect([started.status, started.body]).toMatchObject([202, { state: 'done', queued: 2, started_by: 'token:mia' }])
    expect(after.body).toEqual(started.body)
    expect([direct.status, direct.body]).toMatchObject([202, { state: 'done', events: 0, forecast: null }])
  })

  test('stops, and says what can not be stopped or carried out any more', async () => {
    await storeEvents(201)
    const running = (await ask({ filter: { source: 'generic' }, dry_run: false })).body.id
    const planned = (await ask({ filter: { source: 'generic' }, dry_run: true })).body.plan
    const done = (await ask({ filter: { source: 'nobody' }, dry_run: false })).body.id

    expect((await stop(running)).body).toMatchObject({ state: 'stopped', queued: 0, stopped_by: 'token:mia' })
    expect((await stop(planned)).body).toMatchObject({ state: 'stopped' })
    expect((await ask({ plan: planned })).body).toMatchObject({ status: 409, code: 'not_allowed' })
    expect((await stop(done)).body).toMatchObject({ status: 409, code: 'not_allowed' })
    for (const id of ['nothing', '4dd2f0f4-6d4c-4e1c-8d6a-2c1f2c1b8a11']) {
      expect((await stop(id)).body).toMatchObject({ status: 404, code: 'not_found' })
      expect((await get(`/v1/runs/${id}`)).body).toMatchObject({ status: 404, code: 'not_found' })
    }
    expect((await ask({ plan: '4dd2f0f4-6d4c-4e1c-8d6a-2c1f2c1b8a11' })).body).toMatchObject({ status: 404, code: 'not_found' })
  })

  test.each([
    {},
    { filter: {}, dry_run: true },
    { filter: { source: 'generic' } },
    { dry_run: true },
    { plan: 'x' },
    { plan: '4dd2f0f4-6d4c-4e1c-8d6a-2c1f2c1b8a11', dry_run: true },
    { plan: '4dd2f0f4-6d4c-4e1c-8d6a-2c1f2c1b8a11', filter: { source: 'generic' } },
    { filter: { source: 'generic', recipient: 'ada@example.com' }, dry_run: true },
    { filter: { status: ['pending'] }, dry_run: true },
    { filter: { status: [] }, dry_run: true },
    { filter: { since: 'yesterday' }, dry_run: true },
    { filter: { event_ids: [] }, dry_run: true },
    { filter: { source: 'a\0b' }, dry_run: true },
  ])('refuses %j', async (body) => {
    await storeEvents(1)

    expect((await ask(body)).body).toMatchObject({ status: 400, code: 'invalid_request' })
    expect((await pool.query('select from runs')).rowCount).toBe(0)
  })

  test('takes quarantined events only where the filter names them', async () => {
    await storeEvents(2, 'quarantined')
    const planned = async (filter: object) => (await ask({ filter, dry_run: true })).body.events

    expect([await planned({ source: 'generic' }), await planned({ event_ids: ['n1'] })]).toEqual([0, 0])
    expect([await planned({ status: ['quarantined'] }), await planned({ status: ['quarantined'], event_ids: ['n1'] })]).toEqual([
      2, 1,
    ])
  })

  test('lets operators replay, and readers look', async () => {
    const { body } = await ask({ filter: { source: 'generic' }, dry_run: true })

    for (const by of ['reader', 'sender'] as const) {
      expect((await ask({ plan: body.plan }, shared, by)).status).toBe(403)
      expect((await stop(body.plan, by)).status).toBe(403)
    }
    expect([(await get(`/v1/runs/${body.plan}`)).status, (await get(`/v1/runs/${body.plan}`, 'sender')).status]).toEqual([
      200, 403,
    ])
  })

  test('I18 makes one forecast at a time, and the next one after it, even if that failed', async () => {
    const held = Promise.withResolvers<object>()
    const begun = Promise.withResolvers<void>()
    const own = app({
      ...deps,
      forecast: oneForecastAtATime(() => {
        begun.resolve()
        return held.promise
      }),
    })
    const dry = { filter: { source: 'generic' }, dry_run: true }

    const first = ask(dry, own).then(({ status }) => status)
    await begun.promise
    const second = await ask(dry, own)
    held.reject(new Error('the forecast failed'))
    const statuses = [await first, (await ask(dry, own)).status]

    expect(second.body).toMatchObject({ status: 409, code: 'already_running' })
    expect(statuses).toEqual([500, 500])
  })
})
