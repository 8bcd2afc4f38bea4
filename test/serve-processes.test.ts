import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { startInboxiliSandbox } from '../src/sandbox/inboxili.ts'
import { sampleRequest } from '../src/sandbox/samples.ts'
import { testDatabase } from './support/database.ts'
import { apiKey, payment, postPayment, quick, type Running, run, secrets, start, until } from './support/processes.ts'

const { url: databaseUrl, pool } = await testDatabase()
const sandbox = await startInboxiliSandbox({ apiKey, sendsPerMinute: 1_000_000 })
const folder = mkdtempSync(join(tmpdir(), 'oncehook-serve-test-'))
const secretFile = join(folder, 'stripe')
writeFileSync(secretFile, secrets.STRIPE_WEBHOOK_SECRETS)
afterAll(async () => {
  await sandbox.close()
  rmSync(folder, { recursive: true })
})

const { STRIPE_WEBHOOK_SECRETS: _, ...others } = quick
const environment = {
  ...others,
  STRIPE_WEBHOOK_SECRETS_FILE: secretFile,
  DATABASE_URL: databaseUrl,
  INBOXILI_BASE_URL: sandbox.url,
}
const [first, second] = await Promise.all([start('serve', environment), start('serve', environment)])
// There is none until a test needs one.
let started: Promise<Running> | undefined
const worker = () => {
  started ??= start('worker', environment)
  return started
}

const callsTo = (email: string) => sandbox.ledger.filter((call) => call.to === email).length
const settled = (email: string) =>
  until(async () => {
    const { rows } = await pool.query('select from email_sends where recipient = $1 and state = $2', [email, 'sent'])
    return rows.length === 1
  }, `the send to ${email} is recorded`)

test('I19 acknowledges while there is no worker and every query of the API hangs, and works it off later', async () => {
  const token = (
    await run(['token', 'create', '--role', 'operator', '--name', 'test'], { DATABASE_URL: databaseUrl })
  ).stdout.trim()
  const blocker = await pool.connect()
  await blocker.query('begin; lock table email_sends in access exclusive mode')
  let isBlocked = true
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' }
  const body = JSON.stringify({
    dedupe_key: 'asked:i19',
    message: { to: 'i19-api@example.com', from_email: 'billing@example.com', subject: 'Hi', html_body: '<p>Hi</p>' },
  })
  const clients = Array.from({ length: 16 }, async (_, index) => {
    while (isBlocked) await fetch(`${first.url}/v1/sends`, index % 2 === 0 ? { headers } : { method: 'POST', headers, body })
  })
  const stuck = async (name: string) => {
    const { rows } = await pool.query(
      `select from pg_stat_activity where datname = current_database() and application_name = $1 and wait_event_type = 'Lock'`,
      [name],
    )
    return rows.length
  }
  await until(
    async () => (await stuck('oncehook-ops')) === 5 && (await stuck('oncehook-reads')) === 3,
    'every connection of the API is stuck',
  )

  const answer = await postPayment(first.url, 'i19')

  isBlocked = false
  await blocker.query('rollback')
  blocker.release()
  await Promise.all(clients)
  expect(answer.status).toBe(200)
  expect(sandbox.requests).toBe(0)
  await worker()
  await settled('i19@example.com')
  expect(callsTo('i19@example.com')).toBe(1)
})

test('C-34 fifty copies at once over two processes are one event, one send and one call', async () => {
  await worker()
  const answers = await Promise.all(
    Array.from({ length: 50 }, (_, index) => postPayment(index % 2 === 0 ? first.url : second.url, 'c34')),
  )
  await settled('c34@example.com')

  expect(answers.map(({ status }) => status)).toEqual(Array(50).fill(200))
  expect(answers.filter(({ text }) => text.includes('"status":"accepted","events"')).length).toBe(1)
  const { rows } = await pool.query(
    `select again.redeliveries from webhook_redeliveries again join webhook_events on id = event where event_id = 'evt_c34'`,
  )
  expect(rows).toEqual([{ redeliveries: 49 }])
  expect(callsTo('c34@example.com')).toBe(1)
})

test('C-50 acknowledges every provider within a second while the email API hangs, and sends once later', async () => {
  await worker()
  const samples = [
    ['stripe', 'stripe', 'invoice.paid', secrets.STRIPE_WEBHOOK_SECRETS],
    ['gocardless', 'gocardless', 'payments.confirmed', secrets.GOCARDLESS_WEBHOOK_SECRETS],
    ['github', 'github', 'sponsorship.created', secrets.GITHUB_WEBHOOK_SECRETS],
    ['svix', 'svix', 'order.paid', secrets.SVIX_WEBHOOK_SECRETS],
    ['acme', 'standard-webhooks', 'order.paid', secrets.ACME_WEBHOOK_SECRETS],
    ['shop', 'generic', 'order.paid', secrets.SHOP_WEBHOOK_SECRETS],
  ] as const
  const options = { header: 'x-shop-signature', prefix: 'sha256=', algorithm: 'sha256', encoding: 'hex', id: 'id', type: 'type' }
  sandbox.arm({ kind: 'hold' }, { times: samples.length })

  const took: [string, number, number][] = []
  for (const [source, provider, type, secret] of samples) {
    const { headers, body } = sampleRequest({
      provider,
      secret,
      type,
      email: `c50-${source}@example.com`,
      nowSeconds: Math.floor(Date.now() / 1000),
      ...(provider === 'generic' && { options }),
    })
    const started = performance.now()
    const { status } = await fetch(`${second.url}/webhooks/${source}`, { method: 'POST', headers, body: new Uint8Array(body) })
    took.push([source, status, performance.now() - started])
  }
  await until(() => samples.every(([source]) => callsTo(`c50-${source}@example.com`) === 1), 'every call is held')
  sandbox.releaseHeld()
  for (const [source] of samples) await settled(`c50-${source}@example.com`)

  expect(took.map(([source, status]) => [source, status])).toEqual(samples.map(([source]) => [source, 200]))
  expect(took.filter(([, , ms]) => ms >= 1_000)).toEqual([])
  expect(samples.map(([source]) => callsTo(`c50-${source}@example.com`))).toEqual([1, 1, 1, 1, 1, 1])
})

test('C-47 holds no transaction open while the email API takes its time', async () => {
  await worker()
  sandbox.arm({ kind: 'hold' }, { times: 'always' })
  const ids = Array.from({ length: 40 }, (_, index) => `c47-${index}`)
  const calls = () => sandbox.ledger.filter((call) => call.to?.startsWith('c47-'))

  const answers = await Promise.all(ids.map((id, index) => postPayment(index % 2 === 0 ? first.url : second.url, id)))
  let longest = 0
  await until(async () => {
    const { rows } =
      await pool.query(`select coalesce(max(extract(epoch from clock_timestamp() - state_change)), 0)::float8 as seconds
      from pg_stat_activity where datname = current_database() and state like 'idle in transaction%'`)
    longest = Math.max(longest, rows[0].seconds)
    return calls().length === 8 && calls().every(({ atMs }) => Date.now() - atMs > 2_000)
  }, 'all the calls that one worker makes at once have been held for two seconds')

  expect(answers.map(({ status }) => status)).toEqual(Array(40).fill(200))
  expect(answers.filter(({ ms }) => ms >= 1_000)).toEqual([])
  expect(longest).toBeLessThan(1)
  sandbox.disarm()
  sandbox.releaseHeld()
  await until(() => calls().length === 40 && calls().every(({ answer }) => answer === 200), 'all are sent')
})

test('C-48 survives the end of all its connections', async () => {
  const { exited } = await worker()
  const { rows: killed } = await pool.query(`select pg_terminate_backend(pid) from pg_stat_activity
    where datname = current_database() and application_name like 'oncehook%'`)
  const answer = await until(
    async () => {
      const answer = await postPayment(first.url, 'c48')
      return answer.status !== 503 && answer
    },
    'it is answered',
    5_000,
  )

  expect(killed.length).toBeGreaterThan(10)
  expect(answer.status).toBe(200)
  await settled('c48@example.com')
  const ended = await Promise.race([first.exited, second.exited, exited, Promise.resolve('none')])
  expect(ended).toBe('none')
})

test('C-15 takes two secrets at once and then drops one on SIGHUP, with no request refused in between', async () => {
  const readAgain = () => first.log().filter(({ msg }) => msg === 'configuration read again').length
  const reload = async (content: string) => {
    const before = readAgain()
    writeFileSync(secretFile, content)
    first.kill('SIGHUP')
    await until(() => readAgain() > before, 'the configuration is read again')
  }
  const [oldSecret, newSecret] = [secrets.STRIPE_WEBHOOK_SECRETS, 'whsec_the_next_one']
  let isRotating = true
  const meanwhile = (async () => {
    const statuses: number[] = []
    while (isRotating) statuses.push((await postPayment(first.url, `c15-${statuses.length}`, { secret: oldSecret })).status)
    return statuses
  })()

  await reload(`${newSecret},${oldSecret}`)
  isRotating = false
  const both = [
    await postPayment(first.url, 'c15-old', { secret: oldSecret }),
    await postPayment(first.url, 'c15-new', { secret: newSecret }),
  ]
  await reload(newSecret)
  const dropped = await postPayment(first.url, 'c15-dropped', { secret: oldSecret })
  await reload(oldSecret)

  expect(new Set(await meanwhile)).toEqual(new Set([200]))
  expect(both.map(({ status }) => status)).toEqual([200, 200])
  expect(dropped.status).toBe(401)
})

test('C-13 keeps the secrets it has when the new ones are blank, and says so', async () => {
  writeFileSync(secretFile, '   ')
  first.kill('SIGHUP')
  const line = await until(() => first.log().find(({ msg }) => msg === 'the new configuration is not used'), 'it is refused')
  const signed = await postPayment(first.url, 'c13')
  const forged = await postPayment(first.url, 'c13-forged', { secret: '' })
  writeFileSync(secretFile, secrets.STRIPE_WEBHOOK_SECRETS)

  expect(JSON.stringify(line)).toContain('STRIPE_WEBHOOK_SECRETS is not set')
  expect([signed.status, forged.status]).toEqual([200, 401])
})

test('C-69 I17 writes nothing of a refused request into its log', async () => {
  const from = second.output().length
  const body = '{"id":"evt_c69","customer":"ada@example.com"}'
  const names = ['stripe', 'gocardless', 'github', 'svix', 'acme', 'shop', 'inboxili']
  const post = (path: string, more: Record<string, string> = {}) =>
    fetch(`${second.url}${path}`, {
      method: 'POST',
      headers: { authorization: 'Bearer zzz-secret', cookie: 'a=zzz-cookie', 'user-agent': 'zzz-agent', ...more },
      body,
    })
  const signature = payment('c69', { secret: 'wrong' }).headers['stripe-signature'] as string

  const answers = await Promise.all([
    ...names.map((name) => post(`/webhooks/${name}`)),
    post('/webhooks/stripe', { 'stripe-signature': signature }),
    post('/webhooks/github', { 'x-hub-signature-256': `sha256=${'5a'.repeat(32)}` }),
    post('/webhooks/shop', { 'content-encoding': 'zzz-coding' }),
    post('/webhooks/shop', { 'content-encoding': 'gzip' }),
    post('/webhooks/zzz-path?ada@example.com'),
    post('/v1/sends'),
    post('/webhooks/%zz'),
  ])
  await until(() => second.output().slice(from).split('"result"').length - 1 === 11, 'every webhook has its line')

  const answered = await Promise.all(answers.map(async (answer) => [answer.status, await answer.text()]))
  expect(answered.slice(0, 9)).toEqual(Array(9).fill([401, '']))
  expect(answered.slice(9).map(([status]) => status)).toEqual([415, 400, 404, 401, 400])
  const logged = second.output().slice(from)
  expect(logged).toContain('"reason":"missing_signature"')
  for (const secret of ['zzz-', 'ada@', 'evt_c69', '5a5a5a', signature.slice(-20), ...Object.values(secrets)]) {
    expect(logged).not.toContain(secret)
    expect(answered.map(([, text]) => text).join()).not.toContain(secret)
  }
  expect(new Set(second.log().map((line) => line.level))).not.toContain('error')
})

test('a process that is stopped has written what it counted, and the command shows it', async () => {
  const stopped = await start('serve', environment)
  const post = (headers: Record<string, string>) => fetch(`${stopped.url}/webhooks/acme`, { method: 'POST', headers, body: '{}' })
  const now = String(Math.floor(Date.now() / 1000))
  const forged = { 'webhook-id': 'msg_1', 'webhook-timestamp': now, 'webhook-signature': `v1,${'A'.repeat(43)}=` }
  const statuses = [(await post({ 'content-encoding': 'zzz-coding' })).status, (await post(forged)).status]
  const scraped = await (await fetch(`${stopped.url}/metrics`)).text()

  stopped.kill('SIGTERM')
  const { code } = await stopped.exited

  expect(statuses).toEqual([415, 401])
  expect(scraped).toContain('oncehook_webhook_refusals_total{source="acme",cause="signature_mismatch"} 1')
  expect(code).toBe(0)
  const shown = await run(['sources', 'show', 'acme', '--json'], environment)
  expect(JSON.parse(shown.stdout)).toMatchObject({
    url: '/webhooks/acme',
    last_24_hours: { other: 1 },
    refused: expect.arrayContaining([expect.objectContaining({ cause: 'signature_mismatch', count: 1 })]),
  })
  const listed = await run(['sources', 'list'], environment)
  expect(listed.stdout.split('\n').map((line) => line.split('\t')[0])).toContain('acme')
})
