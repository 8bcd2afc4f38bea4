import { createHmac } from 'node:crypto'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, expect, test, vi } from 'vitest'
import { startInboxiliSandbox } from '../src/sandbox/inboxili.ts'
import { testDatabase } from './support/database.ts'
import { insertAttempt, insertEvent, insertSend } from './support/ops-rows.ts'
import { apiKey, quick, run, secrets, spawnEntry, start, until } from './support/processes.ts'

vi.setConfig({ testTimeout: 60_000 })

const { url: databaseUrl, pool } = await testDatabase()
const sandbox = await startInboxiliSandbox({ apiKey })
afterAll(() => sandbox.close())
const environment = { ...quick, DATABASE_URL: databaseUrl, INBOXILI_BASE_URL: sandbox.url }
const vectors = fileURLToPath(new URL('./vectors/stripe.json', import.meta.url))

const [serve] = await Promise.all([start('serve', environment), start('worker', environment)])

test('trigger posts a signed sample, and the reading commands show what became of it', async () => {
  const triggered = await run(
    ['trigger', 'stripe', 'invoice.paid', '--url', serve.url, '--id', 'evt_cli', '--email', 'cli@example.com', '--count', '3'],
    environment,
  )
  const unknown = await run(['trigger', 'nobody', 'invoice.paid', '--url', serve.url], environment)
  await until(async () => (await pool.query(`select from email_sends where state = 'sent'`)).rows.length === 1, 'it is sent')
  const [sends, events, sendsJson] = await Promise.all([
    run(['sends', 'list'], { DATABASE_URL: databaseUrl }),
    run(['events', 'list'], { DATABASE_URL: databaseUrl }),
    run(['sends', 'list', '--json'], { DATABASE_URL: databaseUrl }),
  ])

  const answers = triggered.stdout.trim().split('\n')
  expect(answers.map((line) => line.slice(0, 4))).toEqual(['200 ', '200 ', '200 '])
  expect(answers.filter((line) => line.startsWith('200 {"status":"accepted"')).length).toBe(1)
  expect(triggered.code).toBe(0)
  expect([unknown.code, unknown.stderr]).toEqual([2, expect.stringContaining('there is no source "nobody"')])
  expect([sends.code, events.code]).toEqual([0, 0])
  expect(sends.stdout).toContain('cli@example.com')
  expect(events.stdout).toContain('evt_cli')
  expect(JSON.parse(sendsJson.stdout)).toMatchObject({
    sends: [{ recipient: 'cli@example.com', status: 'sent' }],
    next_cursor: null,
  })
})

test('token create prints the token alone, which then opens the API; a database is needed', async () => {
  const made = await run(['token', 'create', '--role', 'reader', '--name', 'ci'], { DATABASE_URL: databaseUrl })
  const without = await run(['token', 'create', '--role', 'reader', '--name', 'ci'], {}, { cwd: '/' })
  const answer = await fetch(`${serve.url}/v1/sends`, { headers: { authorization: `Bearer ${made.stdout.trim()}` } })

  expect(made).toEqual({ code: 0, stdout: expect.stringMatching(/^och_[\w-]{43}\n$/), stderr: '' })
  expect(answer.status).toBe(200)
  expect([without.code, without.stderr]).toEqual([78, expect.stringContaining('DATABASE_URL is not set')])
})

test('reconcile says what a sending log would do, does it with --apply, and knows the account by the configuration', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'oncehook-log-'))
  const file = join(directory, 'log.csv')
  writeFileSync(
    file,
    '\ufeff"Message ID";"Recipient";"Status";"Time"\r\n"m_log";"log@example.com";"Delivered";"2026-11-29T14:02:07Z"\r\n',
  )
  const claimed = { recipient: 'log@example.com', claimed_at: new Date('2026-11-29T14:02:00Z') }
  await insertSend(pool, 'log:1', { ...claimed, state: 'needs_review' })
  await insertAttempt(pool, 'log:1', {
    ...claimed,
    outcome: 'unknown',
    called_at: claimed.claimed_at,
    ended_at: claimed.claimed_at,
  })
  const state = async () => (await pool.query(`select status, settled_by from email_sends where dedupe_key = 'log:1'`)).rows[0]

  const without = await run(['reconcile', file], { DATABASE_URL: databaseUrl }, { cwd: directory })
  const dry = await run(['reconcile', file], environment)
  const before = await state()
  const done = await run(['reconcile', file, '--apply', '--reason', 'checked by hand', '--by', 'ann'], environment)
  rmSync(directory, { recursive: true })

  expect(without.stdout).toMatch(/^2\tnothing\tlog:1\taccount not exclusive\t/)
  expect(without.stderr).toContain('So nothing is matched by recipient.')
  expect(dry.stdout).toMatch(/^2\tsettles\tlog:1\tis unknown, would be sent\t[0-9a-f]{64}\n$/)
  expect(dry.stderr).toContain('Columns: recipient = "Recipient" (guessed), message_id = "Message ID" (guessed)')
  expect(before).toEqual({ status: 'needs_review', settled_by: null })
  expect(done.stdout).toMatch(/^2\tsettles\tlog:1\twas unknown, is sent\t/)
  expect(await state()).toEqual({ status: 'delivered', settled_by: 'person:ann' })
  expect([without.code, dry.code, done.code]).toEqual([0, 0, 0])
})

test('a replay waits for its events, and Ctrl-C ends only the waiting', async () => {
  // No worker runs on it, so that it would wait for long.
  const idle = await testDatabase()
  for (const id of ['e1', 'e2']) await insertEvent(idle.pool, id)
  const here = { ...environment, DATABASE_URL: idle.url }
  const { child, output, exited } = spawnEntry(['events', 'replay', '--source', 'stripe', '--since', '1h', '--yes'], here, [
    'ignore',
    'pipe',
    'pipe',
  ])
  await until(async () => (await idle.pool.query(`select from runs where state = 'done'`)).rowCount === 1, 'it is started')
  child.kill('SIGINT')
  const { code } = await exited
  const { rows } = await idle.pool.query<{ id: string }>('select id from runs')
  const run1 = rows[0]?.id
  const asked = await run(['events', 'replay', '--source', 'stripe', '--since', '1h'], here)
  const unwaited = await run(['events', 'replay', '--plan', run1 ?? '', '--no-wait', '--json'], here)

  expect(code).toBe(130)
  expect(output()).toContain(
    `Interrupted: 0 of 2 events were processed, 0 emails sent. The workers go on with the rest: oncehook runs show ${run1}, or stop it: oncehook runs stop ${run1}\n`,
  )
  expect([asked.code, asked.stdout, asked.stderr]).toEqual([2, '', expect.stringContaining('oncehook: --yes: ')])
  expect([unwaited.code, JSON.parse(unwaited.stdout)]).toMatchObject([0, { id: run1, state: 'done', queued: 2 }])
})

test('decisions, switches and the audit end as they are told to', async () => {
  await insertSend(pool, 'decide:1', { state: 'needs_review', recipient: 'deda@example.com' })
  const resolve = (...args: string[]) => run(['sends', 'resolve', 'decide:1', '--reason', 'seen', ...args], environment)

  const unasked = await resolve('--decision', 'retry')
  const stale = await resolve('--decision', 'abandoned', '--version', '7')
  const done = await resolve('--decision', 'abandoned', '--by', 'mia')
  const [paused, audit, sending] = [
    await run(['sending', 'pause', '--reason', 'a look', '--by', 'mia'], environment),
    await run(['audit', '--subject', 'send:decide:1'], environment),
    await run(['sending', 'resume', '--reason', 'looked', '--json'], environment),
  ]
  const fault = await run(['trigger', 'stripe', 'invoice.paid', '--fault', 'often'], environment)

  expect([unasked.code, stale.code, done.code]).toEqual([2, 3, 0])
  expect(stale.stderr).toBe('x Not saved: changed while you decided. It is "Needs a decision" now (version 7 -> 1).\n')
  expect(done.stdout).toBe('- Closed  decide:1\n')
  expect(paused.stdout).toMatch(/^x Sending is paused since .* UTC by person:mia: a look\. Only a person resumes it\.\n/)
  expect(audit.stdout.split('\t').slice(2, 7)).toEqual(['mia', 'cli', 'abandoned', 'send:decide:1', 'seen'])
  expect(JSON.parse(sending.stdout)).toMatchObject({ paused: false })
  expect([fault.code, fault.stderr]).toEqual([2, expect.stringContaining('there is no "often"')])
})

test('every command has help, with examples for those that people use most, and wrong usage ends with 2', async () => {
  const help = async (...path: string[]) => (await run([...path, '--help'])).stdout
  const [top, list, replay] = await Promise.all([help(), help('sends', 'list'), help('events', 'replay')])
  const wrong = await Promise.all([run(['nothing']), run(['sends', 'list', '--colour']), run(['sends', 'show'])])

  expect(top).toContain(
    'Exit codes: 0 done, 1 failed, 2 usage, 3 changed meanwhile, 4 partly done, 78 configuration, 130 interrupted.',
  )
  expect(list).toContain('  $ oncehook sends list --status needs_review,bounced --since 24h\n')
  expect(replay).toContain('  $ oncehook events replay --source stripe --since 2026-11-28T22:00Z --until 2026-11-29T06:00Z\n')
  expect(wrong.map(({ code, stdout }) => [code, stdout])).toEqual([
    [2, ''],
    [2, ''],
    [2, ''],
  ])
})

test('sweep runs the sweeps of a worker once', async () => {
  const { code, stdout, stderr } = await run(['sweep', '--json'], environment)

  expect([code, stderr]).toEqual([0, ''])
  expect(Object.keys(JSON.parse(stdout))).toEqual(['sends', 'events', 'runs', 'plans', 'bodies', 'minutes', 'forms', 'sign-ins'])
})

test('verify judges a file of captured requests without any service', async () => {
  const [good, missing] = await Promise.all([run(['verify', vectors, '--json']), run(['verify', '/nowhere.json'])])

  const results = JSON.parse(good.stdout) as { id: string; verified: boolean }[]
  expect(results.length).toBeGreaterThan(5)
  expect(new Set(results.map(({ verified }) => verified))).toEqual(new Set([true, false]))
  expect([good.code, missing.code]).toEqual([0, 2])
})

test('a running service finds out why it refuses, and says so in its metrics and to nobody else', async () => {
  const received = JSON.stringify({ id: 'evt_1', type: 'invoice.paid' })
  const signed = JSON.stringify({ id: 'evt_1', type: 'invoice.paid' }, undefined, 2)
  const stamp = Math.floor(Date.now() / 1000)
  const secret = secrets.STRIPE_WEBHOOK_SECRETS.split(',')[0] ?? ''
  const digest = createHmac('sha256', secret).update(`${stamp}.${signed}`).digest('hex')

  const answers: string[] = []
  const refuse = async () => {
    const answer = await fetch(`${serve.url}/webhooks/stripe`, {
      method: 'POST',
      headers: { 'stripe-signature': `t=${stamp},v1=${digest}` },
      body: received,
    })
    answers.push(`${answer.status} ${await answer.text()}`)
    return (await fetch(`${serve.url}/metrics`)).text()
  }

  // An explanation may take only so long, which the first ones of a process can need for themselves.
  await expect.poll(refuse).toMatch(/oncehook_webhook_refusals_total\{source="stripe",cause="body_reserialized"\} [1-9]/)
  expect(new Set(answers)).toEqual(new Set(['401 ']))
})

test('demo tells its stories and ends well', async () => {
  const { code, stdout, stderr } = await run(['demo'])

  expect(stdout.split('\n').filter((line) => /^\d\. /.test(line))).toEqual([
    '1. One payment, posted three times',
    '2. "Delivered" arrives before the send is recorded',
    '3. The answer of the email API is lost',
    '4. The email API refuses',
    '5. A lost answer is made up for by a delivery event',
    '6. Two lost answers to one customer',
    '7. A worker is killed between claim and call',
  ])
  expect(stdout.trim().split('\n').at(-1)).toBe('No email went out twice, and what nobody could know was left to a person.')
  expect([code, stderr]).toEqual([0, ''])
})
