import { beforeEach, describe, expect, test } from 'vitest'
import { testApi } from './support/api.ts'
import { insertAttempt, insertEvent, insertReport, insertSend } from './support/ops-rows.ts'
import { patientDatabase, sendRow } from './support/sends.ts'

const database = await patientDatabase()
const { pool } = database
const { get, post, call, audited } = await testApi(database)
const hiding = await testApi(database, {}, { ops: { hidePersonalData: true } })

let number = 0
/** A send whose only call ended unknown. */
async function unknownSend(recipient = 'ada@example.com'): Promise<string> {
  number += 1
  const key = `unknown:${number}`
  await insertSend(pool, key, { state: 'needs_review', recipient })
  await insertAttempt(pool, key, { outcome: 'unknown', called_at: new Date(), ended_at: new Date(), recipient })
  return key
}
/** A delivery event that found no call; answers its event. */
async function parkedReport(columns: object = {}): Promise<string> {
  number += 1
  const event = await insertEvent(pool, `m_${number}:delivered`, { source: 'inboxili' })
  const report = { message_id: `m_${number}`, recipient: 'ada@example.com', match_key: 'ada@example.com', parked: 'foreign' }
  await insertReport(pool, event, { ...report, ...columns })
  return event
}
beforeEach(async () => {
  await pool.query(`update email_sends set state = 'abandoned', settled_at = now() where state = 'needs_review'`)
})

describe('what needs a decision', () => {
  test('is listed with what the evidence suggests, and told in full by its key', async () => {
    const key = await unknownSend()
    await parkedReport()

    const listed = await get('/v1/review')
    const evidence = await get(`/v1/sends/${key}/evidence`)

    expect(listed.body.sends).toMatchObject([{ dedupe_key: key, version: 1, suggestion: { verdict: 'sent' } }])
    expect(evidence.body).toMatchObject({
      dedupe_key: key,
      status: 'needs_review',
      suggestion: { verdict: 'sent' },
      candidates: [{ kind: 'delivered', recipient: 'ada@example.com', parked: 'foreign' }],
    })
    expect((await get('/v1/sends/nobody/evidence')).body).toMatchObject({ status: 404, code: 'not_found' })
    expect((await get('/v1/review?suggestion=perhaps')).status).toBe(400)
  })

  test('is listed with the first operator who asked for it as it is now', async () => {
    const key = await unknownSend()
    const listed = async () => (await get('/v1/review')).body.sends
    const ask = (at: string, actor: string, version: number) =>
      pool.query(
        `insert into audit_log (at, actor, via, action, subject, reason, after)
         values ($1, $2, 'page', 'ask_retry', 'send:' || $3, 'x', jsonb_build_object('version', $4::int))`,
        [at, actor, key, version],
      )
    await pool.query(
      `insert into people (name, role, disabled_at) values ('mia', 'operator', null), ('noa', 'operator', null), ('off', 'operator', now())`,
    )
    await ask('2026-11-29T14:01:00Z', 'person:noa', 2)
    await ask('2026-11-29T14:02:00Z', 'person:off', 1)
    expect(await listed()).toMatchObject([{ dedupe_key: key, asked_by: null, asked_at: null }])

    await ask('2026-11-29T14:07:00Z', 'person:mia', 1)
    await ask('2026-11-29T14:08:00Z', 'person:noa', 1)
    expect(await listed()).toMatchObject([{ dedupe_key: key, asked_by: 'person:mia', asked_at: '2026-11-29T14:07:00.000Z' }])
  })

  test('is for readers and operators; decisions are for operators', async () => {
    const key = await unknownSend()
    const event = await parkedReport()
    const calls = [
      ['get', '/v1/review', undefined, { reader: 200, sender: 403 }],
      ['get', `/v1/sends/${key}/evidence`, undefined, { reader: 200, sender: 403 }],
      ['get', '/v1/reports', undefined, { reader: 200, sender: 403 }],
      ['post', '/v1/resolve', {}, { reader: 403, sender: 403 }],
      ['post', `/v1/sends/${key}/attach`, { version: 1, event, reason: 'x' }, { reader: 403, sender: 403 }],
      ['post', `/v1/reports/${event}/dismiss`, { reason: 'x' }, { reader: 403, sender: 403 }],
      ['post', '/v1/reconcile?dry_run=true', {}, { reader: 403, sender: 403 }],
    ] as const
    for (const [method, path, body, expected] of calls) {
      const statuses = {
        reader: (await call(method, path, body, 'reader')).status,
        sender: (await call(method, path, body, 'sender')).status,
      }
      expect(statuses, path).toEqual(expected)
    }
  })
})

describe('one decision for many sends', () => {
  const plan = (body: object) => post('/v1/resolve', { dry_run: true, decision: 'abandoned', reason: 'looked at', ...body })

  test('is planned, changes nothing then, and is carried out once for what is still as it was', async () => {
    const keys = [await unknownSend(), await unknownSend(), await unknownSend()]
    const planned = await plan({ sends: [...keys.map((key) => ({ key })), { key: 'nobody' }] })
    await pool.query('update email_sends set version = 2 where dedupe_key = $1', [keys[1]])
    const before = await Promise.all(keys.map((key) => sendRow(pool, key, 'state')))

    const runs = await Promise.all([
      post('/v1/resolve', { plan: planned.body.plan }),
      post('/v1/resolve', { plan: planned.body.plan }),
    ])
    const found = await get(`/v1/resolve/${planned.body.plan}`)

    expect(planned.body).toMatchObject({ state: 'planned', will_change: 3, skipped: 1, decided: 0, created_by: 'token:mia' })
    expect(before.map((row) => row?.state)).toEqual(['needs_review', 'needs_review', 'needs_review'])
    expect(runs.map(({ status, body }) => [status, body.state, body.decided, body.skipped])).toEqual([
      [200, 'done', 2, 2],
      [200, 'done', 2, 2],
    ])
    expect(found.body.sends).toMatchObject([
      { dedupe_key: keys[0], result: 'decided' },
      { dedupe_key: keys[1], result: 'skipped', skipped: 'changed' },
      { dedupe_key: keys[2], result: 'decided' },
      { dedupe_key: 'nobody', result: 'skipped', skipped: 'not_found' },
    ])
    expect(await audited(`send:${keys[0]}`)).toEqual([
      { actor: 'token:mia', via: 'api', action: 'abandoned', reason: 'looked at' },
    ])
    expect(await audited(`send:${keys[1]}`)).toEqual([])
  })

  test('of more than ten wants to be told how many', async () => {
    for (let count = 0; count < 11; count += 1) await unknownSend()
    const { body } = await plan({ filter: {} })

    const untold = await post('/v1/resolve', { plan: body.plan })
    const wrong = await post('/v1/resolve', { plan: body.plan, confirm: 10 })
    const told = await post('/v1/resolve', { plan: body.plan, confirm: 11 })

    expect(untold.body).toMatchObject({ status: 409, code: 'unconfirmed', will_change: 11 })
    expect(wrong.body).toMatchObject({ status: 409, code: 'unconfirmed' })
    expect(told.body).toMatchObject({ state: 'done', decided: 11 })
  })

  test.each([
    {},
    { plan: 'x' },
    { plan: '4dd2f0f4-6d4c-4e1c-8d6a-2c1f2c1b8a11', dry_run: true },
    { dry_run: true, decision: 'abandoned', reason: 'x', sends: [{ key: '\ud800' }] },
    { dry_run: true, decision: 'abandoned', reason: 'x', sends: [{ key: 'a\u0000' }] },
    { decision: 'abandoned', reason: 'x', filter: {} },
    { dry_run: false, decision: 'abandoned', reason: 'x', filter: {} },
    { dry_run: true, decision: 'abandoned', filter: {} },
    { dry_run: true, decision: 'reopen', reason: 'x', filter: {} },
    { dry_run: true, decision: 'sent', reason: 'x', sends: [] },
    { dry_run: true, decision: 'sent', reason: 'x', sends: [{ key: 'a' }], filter: {} },
    { dry_run: true, decision: 'sent', reason: 'x', sends: [{ key: 'a', state: 'sent' }] },
  ])('%j is refused', async (body) => {
    expect((await post('/v1/resolve', body)).body).toMatchObject({ status: 400, code: 'invalid_request' })
  })

  test('that nobody planned is not found', async () => {
    const id = '4dd2f0f4-6d4c-4e1c-8d6a-2c1f2c1b8a11'

    expect((await post('/v1/resolve', { plan: id })).body).toMatchObject({ status: 404, code: 'not_found' })
    for (const path of [id, 'x']) expect((await get(`/v1/resolve/${path}`)).status).toBe(404)
  })
})

describe('reports that found no send', () => {
  test('C-58 are attached once, by the version that was seen', async () => {
    const [key, other] = [await unknownSend(), await unknownSend()]
    const event = await parkedReport()
    const attach = (to: string) => post(`/v1/sends/${to}/attach`, { version: 1, event, reason: 'same subject' })

    const answers = await Promise.all([attach(key), attach(other)])
    const late = await post(`/v1/reports/${event}/dismiss`, { reason: 'x' })

    expect(answers.map(({ status, body }) => body.code ?? status).sort()).toEqual([200, 'report_taken'])
    expect(answers.find(({ status }) => status === 200)?.body).toMatchObject({
      status: 'delivered',
      settlements: [{ grade: 'P' }],
    })
    expect(late.body).toMatchObject({ status: 409, code: 'report_taken' })
  })

  test('say why they can not be attached, and change nothing then', async () => {
    const key = await unknownSend()
    const [event, elsewhere] = [
      await parkedReport(),
      await parkedReport({ recipient: 'x@example.com', match_key: 'x@example.com' }),
    ]
    await insertSend(pool, 'no-call', { state: 'needs_review' })
    const attach = (to: string, body: object) => post(`/v1/sends/${to}/attach`, { version: 1, event, reason: 'x', ...body })

    const answers = [
      await attach(key, { version: 7 }),
      await attach(key, { event: elsewhere }),
      await attach(key, { event: '999999' }),
      await attach('no-call', {}),
      await attach('nobody', {}),
      await attach(key, { event: 'x' }),
      await attach(key, { attempt: 'x' }),
    ]

    expect(answers.map(({ body }) => [body.status, body.code])).toEqual([
      [409, 'stale_version'],
      [409, 'other_mailbox'],
      [404, 'not_found'],
      [409, 'no_call'],
      [404, 'not_found'],
      [400, 'invalid_request'],
      [400, 'invalid_request'],
    ])
    expect(await sendRow(pool, key, 'state', 'version')).toEqual({ state: 'needs_review', version: 1 })
    expect((await attach(key, { event: elsewhere, other_mailbox: true })).body.status).toBe('delivered')
  })

  test('are listed, said to be none of ours, and listed apart then', async () => {
    const event = await parkedReport()
    const eventsOf = (body: { reports: { event: string }[] }) => body.reports.map((report) => report.event)
    const before = await get('/v1/reports?parked=foreign&limit=1')

    const dismissed = await post(`/v1/reports/${event}/dismiss`, { reason: 'newsletter' })

    expect(eventsOf(before.body)).toEqual([event])
    expect(dismissed.body).toEqual({ outcome: 'dismissed' })
    expect(eventsOf((await get('/v1/reports')).body)).not.toContain(event)
    expect(eventsOf((await get('/v1/reports?dismissed=true')).body)).toContain(event)
    expect(await audited(`event:${event}`)).toEqual([
      { actor: 'token:mia', via: 'api', action: 'not ours', reason: 'newsletter' },
    ])
    expect((await post('/v1/reports/999999/dismiss', { reason: 'x' })).status).toBe(404)
  })
})

describe('POST /v1/reconcile', () => {
  const upload = (query: string, text: string, type = 'text/csv') =>
    call('post', `/v1/reconcile?${query}`).set('content-type', type).send(text)
  const logOf = (...rows: string[]) => ['To,Message ID,Status,Time', ...rows].join('\r\n')

  test('says what a sending log would settle, and settles by it once there is a reason', async () => {
    const key = await unknownSend('log@example.com')
    const log = logOf(`log@example.com,m_log,delivered,${new Date().toISOString()}`)

    const dry = await upload('dry_run=true', log)
    const untouched = await sendRow(pool, key, 'state')
    const done = await upload('dry_run=false&reason=log%20of%20today', log)
    const again = await upload('dry_run=false&reason=again', log)

    expect(dry.body).toMatchObject({
      applied: false,
      columns: { recipient: 'To', message_id: 'Message ID', status: 'Status', time: 'Time', subject: null },
      summary: { settles: 1, known: 0 },
      lines: [{ line: 2, outcome: 'settles', dedupe_key: key }],
      lines_left_out: 0,
    })
    expect(untouched).toEqual({ state: 'needs_review' })
    expect(done.body).toMatchObject({ applied: true, file_sha256: dry.body.file_sha256, summary: { settles: 1 } })
    expect((await get(`/v1/sends/${key}`)).body).toMatchObject({ status: 'delivered', message_id: 'm_log' })
    expect(again.body).toMatchObject({ summary: { settles: 0, known: 1 }, lines: [] })
  })

  test('takes the names of columns', async () => {
    const { body } = await upload('dry_run=true&message_id_column=ref&status_column=what', 'ref,what\nm_1,delivered\n')

    expect(body).toMatchObject({ columns: { message_id: 'ref', status: 'what', recipient: null } })
  })

  test.each([
    ['no word on whether it is a dry run', '', logOf(), 'text/csv', 400, 'invalid_request'],
    ['no reason', 'dry_run=false', logOf(), 'text/csv', 400, 'invalid_request'],
    ['neither true nor false', 'dry_run=yes', logOf(), 'text/csv', 400, 'invalid_request'],
    ['a zone that there isn’t', 'dry_run=true&zone=Mars/Olympus', logOf(), 'text/csv', 400, 'invalid_request'],
    ['an unknown parameter', 'dry_run=true&token=x', logOf(), 'text/csv', 400, 'invalid_request'],
    ['another type', 'dry_run=true', logOf(), 'application/json', 400, 'invalid_request'],
    ['rows of different lengths', 'dry_run=true', 'a,b\nc', 'text/csv', 400, 'unreadable_file'],
    ['an open quote', 'dry_run=true', 'a,b\n"c', 'text/csv', 400, 'unreadable_file'],
    ['more bytes than may be', 'dry_run=true', 'x'.repeat(5_000_001), 'text/csv', 413, 'body_too_large'],
  ])('refuses %s', async (_name, query, text, type, status, code) => {
    expect((await upload(query, text, type)).body).toMatchObject({ status, code })
  })
})

describe('personal data that the configuration hides', () => {
  test('is masked in every answer to a reader, and shown to an operator', async () => {
    const key = await unknownSend('carol@example.com')
    const event = await insertEvent(pool, 'evt_hidden')
    const paths = [`/v1/sends?q=${key}`, `/v1/sends/${key}`, '/v1/review', `/v1/sends/${key}/evidence`]

    for (const path of paths) {
      const hidden = await hiding.get(path)
      const shown = await hiding.get(path, 'operator')
      expect([hidden.status, hidden.text.includes('carol@'), hidden.text.includes(key)], path).toEqual([200, false, true])
      expect(shown.text, path).toContain('carol@example.com')
    }
    const body = await hiding.get(`/v1/events/${event}/body`)
    expect([body.status, body.body.code]).toEqual([403, 'forbidden'])
    expect((await hiding.get(`/v1/events/${event}/body`, 'operator')).status).toBe(200)
    expect((await get(`/v1/events/${event}/body`)).status).toBe(200)
  })
})
