import express from 'express'
import supertest from 'supertest'
import { beforeEach, describe, expect, test } from 'vitest'
import { readConfig } from '../src/config.ts'
import { openJobs } from '../src/follow-ups/queue.ts'
import { createLog } from '../src/log.ts'
import { opsRoutes } from '../src/ops/routes.ts'
import { createToken } from '../src/ops/tokens.ts'
import { holdToDeclarations } from './support/declared.ts'
import { insertAttempt, insertEvent, insertReport, insertSend } from './support/ops-rows.ts'
import { jobsOf, patientDatabase, sendRow } from './support/sends.ts'

const { pool, url } = await patientDatabase()
const { enqueueSends } = await openJobs(url)
const tokens = {
  operator: await createToken(pool, { name: 'mia', role: 'operator' }),
  reader: await createToken(pool, { name: 'grafana', role: 'reader' }),
  sender: await createToken(pool, { name: 'shop', role: 'sender' }),
}
let secondPerson = false
const app = express().use(
  holdToDeclarations(),
  opsRoutes({
    pool,
    reads: pool,
    log: createLog('silent', 'test'),
    enqueueSends,
    config: () => readConfig({ sources: {}, ops: { secondPerson } }),
    fingerprints: () => [],
    replay: async () => ({ outcome: 'queued' }),
    runs: {} as never, // none is asked for
  }),
)
const call = (method: 'get' | 'post', path: string, body?: object, by: keyof typeof tokens = 'operator') =>
  supertest(app)[method](path).set('authorization', `Bearer ${tokens[by]}`).send(body)
const audited = async (subject: string) =>
  (await pool.query('select actor, via, action, reason from audit_log where subject = $1 order by id', [subject])).rows

let number = 0
let key = ''
/** A send whose only call ended unknown. */
beforeEach(async () => {
  number += 1
  key = `unknown:${number}`
  await insertSend(pool, key, { state: 'needs_review' })
  await insertAttempt(pool, key, { outcome: 'unknown', called_at: new Date(), ended_at: new Date() })
})
const resolve = (body: object, by?: keyof typeof tokens) => call('post', `/v1/sends/${key}/resolve`, body, by)

test('where a resend takes two people, a token is none of them', async () => {
  secondPerson = true
  const { status, body } = await resolve({ version: 1, decision: 'retry', reason: 'x' })
  secondPerson = false

  expect([status, body.code]).toEqual([409, 'second_person_needed'])
  expect(await sendRow(pool, key, 'state', 'version')).toEqual({ state: 'needs_review', version: 1 })
})

describe('a decision over HTTP', () => {
  test('C-58 I16 of two retries at once one is made, with one job, and the other is told', async () => {
    const retry = { version: 1, decision: 'retry', reason: 'not in the dashboard' }

    const answers = await Promise.all([resolve(retry), resolve(retry)])

    expect(answers.map(({ status }) => status).sort()).toEqual([200, 409])
    const refused = answers.find(({ status }) => status === 409)?.body
    expect(refused).toMatchObject({ code: 'stale_version', send_status: 'queued', version: 2 })
    expect(await sendRow(pool, key, 'state', 'version')).toEqual({ state: 'queued', version: 2 })
    expect(await jobsOf(pool, key)).toHaveLength(1)
    expect(await audited(`send:${key}`)).toEqual([
      { actor: 'token:mia', via: 'api', action: 'retry', reason: 'not in the dashboard' },
    ])
  })

  test('sent with its message ID is settled, and what came of it is answered', async () => {
    const { status, body } = await resolve({ version: 1, decision: 'sent', message_id: 'm-http', reason: 'seen' })

    expect([status, body.status, body.message_id, body.settled_by]).toEqual([200, 'sent', 'm-http', 'token:mia'])
    expect(body.attempts).toMatchObject([{ outcome: 'unknown', message_id: 'm-http' }])
    expect(body.settlements).toMatchObject([{ grade: 'P', to_state: 'sent', actor: 'token:mia' }])
    const reopened = await call('post', `/v1/sends/${key}/reopen`, { version: body.version, reason: 'wrong line' })
    expect([reopened.status, reopened.body.status]).toEqual([200, 'needs_review'])
    expect((await audited(`send:${key}`)).map(({ action }) => action)).toEqual(['sent', 'reopen'])
  })

  test('I9 with the message of an email to somebody else is refused', async () => {
    const event = await insertEvent(pool, 'm-theirs:delivered', { source: 'inboxili' })
    const theirs = { message_id: 'm-theirs', recipient: 'grace@example.com', match_key: 'grace@example.com', parked: 'foreign' }
    await insertReport(pool, event, theirs)

    const { status, body } = await resolve({ version: 1, decision: 'sent', message_id: 'm-theirs', reason: 'seen' })

    expect([status, body.code]).toEqual([409, 'message_taken'])
    expect(await sendRow(pool, key, 'state', 'version')).toEqual({ state: 'needs_review', version: 1 })
  })

  test('C-58 is refused on a send that is delivered, claimed or unheard of', async () => {
    await insertSend(pool, 'done', { state: 'sent', delivered_at: new Date() })
    await insertSend(pool, 'busy', { state: 'claimed' })
    const retry = { version: 1, decision: 'retry', reason: 'why not' }

    const answers = await Promise.all(['done', 'busy', 'nobody'].map((it) => call('post', `/v1/sends/${it}/resolve`, retry)))

    expect(answers.map(({ status, body }) => [status, body.code, body.send_status])).toEqual([
      [409, 'not_allowed', 'delivered'],
      [409, 'not_allowed', 'claimed'],
      [404, 'not_found', undefined],
    ])
  })

  test.each([
    ['no reason', { version: 1, decision: 'retry' }],
    ['a blank reason', { version: 1, decision: 'retry', reason: ' \n ' }],
    ['no version', { decision: 'retry', reason: 'x' }],
    ['an unknown decision', { version: 1, decision: 'delete', reason: 'x' }],
    ['a message ID with a retry', { version: 1, decision: 'retry', message_id: 'm', reason: 'x' }],
    ['a field that nobody knows', { version: 1, decision: 'retry', reason: 'x', state: 'sent' }],
    ['a state instead', { version: 1, state: 'sent', reason: 'x' }],
  ])('with %s is refused and changes nothing', async (_name, body) => {
    expect((await resolve(body)).status).toBe(400)
    expect(await sendRow(pool, key, 'state', 'version')).toEqual({ state: 'needs_review', version: 1 })
  })

  test('takes the version by If-Match, as the ETag of what was seen says it', async () => {
    const { headers } = await call('get', `/v1/sends/${key}`)
    const byTag = (tag: string, body: object) =>
      call('post', `/v1/sends/${key}/resolve`, { decision: 'abandoned', reason: 'x', ...body }).set('if-match', tag)

    const answers = [
      await byTag('"2"', {}),
      await byTag('"1"', { version: 2 }),
      await byTag('*', {}),
      await byTag('W/"1"', {}),
      await byTag('"1", "2"', {}),
      await byTag('1', { version: 1 }),
    ]
    const before = await sendRow(pool, key, 'state', 'version')
    const decided = await byTag(headers.etag ?? '', { version: 1 })

    expect(headers.etag).toBe('"1"')
    expect(answers.map(({ status, body }) => [status, body.code, body.errors?.[0].path])).toEqual([
      [409, 'stale_version', undefined],
      [400, 'invalid_request', 'version'],
      [400, 'invalid_request', 'If-Match'],
      [400, 'invalid_request', 'If-Match'],
      [400, 'invalid_request', 'If-Match'],
      [400, 'invalid_request', 'If-Match'],
    ])
    expect(before).toEqual({ state: 'needs_review', version: 1 })
    expect([decided.status, decided.body.status, decided.headers.etag]).toEqual([200, 'abandoned', '"2"'])
  })

  test('is not told to be unchanged by an ETag, as what stands beside the version may have changed', async () => {
    const { status, body } = await call('get', `/v1/sends/${key}`).set('if-none-match', '"1"')

    expect([status, body.dedupe_key]).toEqual([200, key])
  })

  test('is for operators only', async () => {
    const body = { version: 1, decision: 'abandoned', reason: 'x' }
    const answers = await Promise.all([
      resolve(body, 'reader'),
      resolve(body, 'sender'),
      call('post', `/v1/sends/${key}/reopen`, body, 'reader'),
      call('post', '/v1/sending', { version: 1, paused: true, reason: 'x' }, 'reader'),
      call('post', '/v1/matching', { version: 1, mode: 'suggest', reason: 'x' }, 'sender'),
      call('get', '/v1/sending', undefined, 'sender'),
    ])

    expect(answers.map(({ status }) => status)).toEqual([403, 403, 403, 403, 403, 403])
    expect(await sendRow(pool, key, 'version')).toEqual({ version: 1 })
  })

  test('a GET of an action changes nothing', async () => {
    const answers = await Promise.all(
      [`/v1/sends/${key}/resolve`, `/v1/sends/${key}/reopen`, '/v1/matching'].map((path) => call('get', path)),
    )

    expect(answers.map(({ status, headers }) => [status, headers.allow])).toEqual([
      [405, 'POST'],
      [405, 'POST'],
      [405, 'POST'],
    ])
  })
})

test('sending and matching are switched with the version that was seen, and audited', async () => {
  const { body: before } = await call('get', '/v1/sending', undefined, 'reader')
  const paused = await call('post', '/v1/sending', { version: before.version, paused: true, reason: 'Inboxili is down' })
  const stale = await call('post', '/v1/sending', { version: before.version, paused: false, reason: 'late' })
  const matching = await call('post', '/v1/matching', {
    version: paused.body.version,
    mode: 'suggest',
    reason: 'a strange event',
  })
  const going = await call('post', '/v1/sending', { version: matching.body.version, paused: false, reason: 'it is up' })

  expect(before).toMatchObject({ paused: false, reason: null, matching: 'auto' })
  expect(paused.body).toMatchObject({ paused: true, reason: 'Inboxili is down', by: 'token:mia' })
  expect([stale.status, stale.body.code]).toEqual([409, 'stale_version'])
  expect(matching.body).toMatchObject({ matching: 'suggest', matching_reason: 'a strange event' })
  expect(going.body).toMatchObject({ paused: false, reason: null, by: null })
  expect((await audited('sending')).map(({ action }) => action)).toEqual(['pause sending', 'matching suggest', 'resume sending'])
})

test('C-58 a switch of sending takes If-Match too', async () => {
  const { headers } = await call('get', '/v1/sending')

  const held = await call('post', '/v1/sending', { paused: true, reason: 'x' }).set('if-match', headers.etag ?? '')
  const stale = await call('post', '/v1/matching', { mode: 'suggest', reason: 'x' }).set('if-match', headers.etag ?? '')
  await call('post', '/v1/sending', { paused: false, reason: 'x' }).set('if-match', held.headers.etag ?? '')

  expect([held.status, held.body.paused]).toEqual([200, true])
  expect([stale.status, stale.body.code, stale.body.version]).toEqual([409, 'stale_version', held.body.version])
})
