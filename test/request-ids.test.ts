import { afterAll, expect, test, vi } from 'vitest'
import { startInboxiliSandbox } from '../src/sandbox/inboxili.ts'
import { testDatabase } from './support/database.ts'
import { apiKey, payment, quick, run, secrets, start, until } from './support/processes.ts'

vi.setConfig({ testTimeout: 90_000 })

const { url: databaseUrl, pool } = await testDatabase()
const sandbox = await startInboxiliSandbox({ apiKey, sendsPerMinute: 1_000_000 })
afterAll(() => sandbox.close())
const environment = {
  ...quick,
  DATABASE_URL: databaseUrl,
  INBOXILI_BASE_URL: sandbox.url,
  ONCEHOOK_CALL_TIMEOUT_MS: '500',
  ONCEHOOK_WORKER_METRICS_PORT: '0',
}
const [serve, worker] = await Promise.all([start('serve', environment), start('worker', environment)])
sandbox.setWebhook({ url: `${serve.url}/webhooks/inboxili`, secret: secrets.INBOXILI_WEBHOOK_SECRETS })
const token = (
  await run(['token', 'create', '--role', 'operator', '--name', 'test'], { DATABASE_URL: databaseUrl })
).stdout.trim()

const post = (request: string, id: string, options: Parameters<typeof payment>[1] = {}) => {
  const { headers, body } = payment(id, options)
  return fetch(`${serve.url}/webhooks/stripe`, { method: 'POST', headers: { ...headers, 'x-request-id': request }, body })
}
const api = (request: string, path: string, body: object) =>
  fetch(`${serve.url}${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json', 'x-request-id': request },
    body: JSON.stringify(body),
  })
/** What the processes have logged under a request's ID. */
const said = (request: string) =>
  [serve, worker].flatMap((process) =>
    process
      .log()
      .filter((line) => line.request === request)
      .map((line) => line.msg),
  )
const statusOf = async (recipient: string) =>
  (await pool.query<{ status: string }>('select status from email_sends where recipient = $1', [recipient])).rows[0]?.status

test('the ID of a webhook request is in each line about its event and its email, from the answer to the record of the call', async () => {
  const answer = await post('abc', 'ids1')

  expect([answer.status, answer.headers.get('x-request-id')]).toEqual([200, 'abc'])
  await until(() => said('abc').length === 4, 'the email is sent and recorded')
  expect(said('abc')).toEqual(['webhook', 'event processed', 'call ended', 'answer recorded'])
  // The delivery event came by a request of its own.
  await until(async () => (await statusOf('ids1@example.com')) === 'delivered', 'the report is in')
  expect(said('abc')).toHaveLength(4)
})

test('events that share a transaction keep each its own', async () => {
  await Promise.all(Array.from({ length: 20 }, (_, index) => post(`shared-${index}`, `shared${index}`, { type: 'invoice.paid' })))

  const wanted = ['webhook', 'event processed', 'call ended', 'answer recorded']
  for (let index = 0; index < 20; index += 1) {
    await until(() => said(`shared-${index}`).length === 4, `email ${index} is recorded`)
    expect(said(`shared-${index}`)).toEqual(wanted)
  }
})

test('that of POST /v1/sends goes with its email, and with the call that repeats a refused one', async () => {
  const to = 'ids2@example.com'
  sandbox.arm({ kind: 'rate_limited', retryAfter: 1 }, { to })

  await api('send-7', '/v1/sends', {
    dedupe_key: 'ids:2',
    message: { to, from_email: 'billing@example.com', subject: 'Hello', html_body: '<p>Hello</p>' },
  })

  const wanted = ['send requested', 'call ended', 'answer recorded', 'call ended', 'answer recorded']
  await until(() => said('send-7').length === 5, 'the second call is recorded')
  expect(said('send-7')).toEqual(wanted)
})

test('that of a replay goes with what it brings, and a run goes by its own ID', async () => {
  const { rows } = await pool.query<{ id: string }>(`select id from webhook_events where event_id = 'evt_ids1'`)
  await api('again-1', `/v1/events/${rows[0]?.id}/replay`, {})
  await until(() => said('again-1').includes('event processed'), 'it is processed again')

  const planned = await api('plan-1', '/v1/replay', { filter: { event_ids: ['evt_ids1'] }, dry_run: true })
  const { plan } = (await planned.json()) as { plan: string }
  await api('run-1', '/v1/replay', { plan })

  await until(() => said(plan).includes('event processed'), 'the run has processed it')
  expect([planned.status, said(plan)]).toEqual([200, ['event processed']])
})

test('I17 a whole life leaves no secret, address, body or token in a log or a metric, whatever the email API says back', async () => {
  const canary = 'i17-canary'
  const to = (name: string) => `${name}-${canary}@example.com`
  const echo = `${to('refused')} is wrong in {"html_body":"<p>Thank you</p>"} by ${apiKey}`
  sandbox.arm({ kind: 'status', status: 422, code: 'validation_error', message: echo }, { to: to('refused') })
  // Without a report, which would settle it as soon as the call is given up.
  sandbox.arm({ kind: 'hold' }, { to: to('silent') })
  sandbox.armReports({ kind: 'never' }, { to: to('silent') })
  const life = [
    await post('i17-forged', 'i17forged', { email: to('forged'), secret: `wrong-${canary}` }),
    await post('i17-good', 'i17good', { email: to('good') }),
    await post('i17-twice', 'i17good', { email: to('good') }),
    await post('i17-refused', 'i17refused', { email: to('refused') }),
    await post('i17-silent', 'i17silent', { email: to('silent') }),
    await fetch(`${serve.url}/webhooks/stripe?q=${to('query')}`, { method: 'POST', body: `{"note":"${canary}"` }),
    await api('i17-send', '/v1/sends', { dedupe_key: `i17:${canary}`, message: { to: to('bad'), from_email: 'x' } }),
    await fetch(`${serve.url}/v1/sends?recipient=${to('list')}`, { headers: { authorization: `Bearer ${canary}` } }),
    await fetch(`${serve.url}/v1/sends?recipient=${to('list')}`, { headers: { authorization: `Bearer ${token}` } }),
  ].map(({ status }) => status)
  await until(async () => (await statusOf(to('good'))) === 'delivered', 'one is delivered')
  await until(async () => (await statusOf(to('refused'))) === 'rejected', 'one is refused')
  await until(async () => (await statusOf(to('silent'))) === 'needs_review', 'one is unknown')
  sandbox.releaseHeld()
  const port = worker.log().find(({ msg }) => msg === 'metrics are served')?.port
  const metrics = await Promise.all(
    [serve.url, `http://127.0.0.1:${port}`].map(async (url) => (await fetch(`${url}/metrics`)).text()),
  )

  expect(life).toEqual([401, 200, 200, 200, 200, 401, 400, 401, 200])
  expect(metrics[1]).toMatch(/oncehook_email_calls_total\{outcome="unknown"\} [1-9]/)
  expect(said('i17-silent')).toContain('call ended')
  const told = [serve.output(), worker.output(), ...metrics].join('\n')
  const never = [canary, 'example.com', 'Thank you', 'html_body', 'whsec_', token, apiKey, ...Object.values(secrets), databaseUrl]
  for (const text of never) expect(told.includes(text), `${text} is told`).toBe(false)
})
