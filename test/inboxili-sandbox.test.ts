import { createHmac } from 'node:crypto'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, expect, test } from 'vitest'
import { Inboxili, InboxiliConnectionError } from '#inboxili'
import { type InboxiliSandboxOptions, startInboxiliSandbox } from '../src/sandbox/inboxili.ts'

const message = { to: 'ada@example.com', from_email: 'billing@example.com', subject: 'Receipt', html_body: '<p>Paid</p>' }
const SEND = '/api/v1/transactional/send'
const closers: (() => Promise<unknown>)[] = []

afterEach(async () => {
  for (const close of closers.splice(0)) await close()
})

async function start(options: Partial<InboxiliSandboxOptions> = {}) {
  const sandbox = await startInboxiliSandbox({
    apiKey: 'ik_test',
    reportDelayMs: 0,
    now: () => Date.UTC(2026, 9, 21, 7, 28),
    ...options,
  })
  closers.push(sandbox.close)
  const client = new Inboxili('ik_test', { baseUrl: sandbox.url, timeout: 3000, maxRetries: 0 })
  return { sandbox, send: (to = message.to) => client.emails.send({ ...message, to }) }
}

/** Takes reports the way the service does; answers the statuses given, then 200. */
async function receiver(...statuses: number[]) {
  const posts: { payload: unknown; isSigned: boolean }[] = []
  const server = createServer((req, res) => {
    void req.toArray().then((chunks) => {
      const body = Buffer.concat(chunks)
      const expected = createHmac('sha256', 'whsec').update(body).digest('hex')
      posts.push({ payload: JSON.parse(body.toString()), isSigned: req.headers['x-inboxili-signature'] === expected })
      res.writeHead(statuses.shift() ?? 200).end()
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  closers.push(async () => {
    server.close()
    server.closeAllConnections()
  })
  const { port } = server.address() as AddressInfo
  return { posts, webhook: { url: `http://127.0.0.1:${port}/webhooks/inboxili`, secret: 'whsec' } }
}

async function http(url: string, method: string, body?: unknown, headers: Record<string, string> = {}) {
  const answer = await fetch(url, {
    method,
    headers: { 'content-type': 'application/json', ...headers },
    ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  })
  return { status: answer.status, headers: answer.headers, json: await answer.json() }
}

const report = (fields: object) => {
  return { event: 'delivered', message_id: 'm1', to: 'ada@example.com', timestamp: '2026-10-21T07:28:00.000Z', ...fields }
}

test('A valid send is answered sent with an ID of its own, and stands in the ledger', async () => {
  const { sandbox, send } = await start()

  const first = await send()
  const second = await send()

  expect(first).toEqual({ status: 'sent', message_id: expect.stringMatching(/^[0-9a-f-]{36}$/) })
  expect(second.message_id).not.toBe(first.message_id)
  expect(sandbox.requests).toBe(2)
  expect(sandbox.ledger[0]).toMatchObject({
    message,
    to: 'ada@example.com',
    accepted: true,
    messageId: first.message_id,
    answer: 200,
    fault: null,
  })
})

test.for([
  ['a wrong key', SEND, 'POST', message, 'Bearer ik_other', 401, 'unauthorized'],
  ['no key', SEND, 'POST', message, '', 401, 'unauthorized'],
  ['another path', '/api/v1/send', 'POST', message, 'Bearer ik_test', 404, 'not_found'],
  ['another method', SEND, 'PUT', message, 'Bearer ik_test', 405, 'method_not_allowed'],
  ['a body that is not JSON', SEND, 'POST', '{"to":', 'Bearer ik_test', 422, 'validation_error'],
  ['an unknown field', SEND, 'POST', { ...message, cc: 'eve@example.com' }, 'Bearer ik_test', 422, 'validation_error'],
  ['no recipient', SEND, 'POST', { ...message, to: undefined }, 'Bearer ik_test', 422, 'validation_error'],
  [
    'two recipients',
    SEND,
    'POST',
    { ...message, to: ['a@example.com', 'b@example.com'] },
    'Bearer ik_test',
    422,
    'validation_error',
  ],
  ['no sender', SEND, 'POST', { ...message, from_email: '' }, 'Bearer ik_test', 422, 'validation_error'],
  [
    'neither html_body nor template_id',
    SEND,
    'POST',
    { ...message, html_body: undefined },
    'Bearer ik_test',
    422,
    'validation_error',
  ],
  ['no subject and no template', SEND, 'POST', { ...message, subject: undefined }, 'Bearer ik_test', 422, 'validation_error'],
] as const)('A request with %s is refused and sends nothing', async ([, path, method, body, authorization, status, code]) => {
  const { sandbox } = await start()

  const answer = await http(sandbox.url + path, method, body, { authorization })

  expect(answer.status).toBe(status)
  expect(answer.json).toEqual({ error: { code, message: expect.stringMatching(/./) } })
  expect(sandbox.ledger.map((call) => [call.accepted, call.answer])).toEqual([[false, status]])
})

test('C-54 more requests in 60 s than allowed get 429 with the time to wait', async () => {
  let time = 1_000_000
  const { send } = await start({ sendsPerMinute: 2, now: () => time })

  await send()
  time += 20_000
  await send()
  time += 10_500
  await expect(send()).rejects.toMatchObject({ status: 429, code: 'rate_limited', retryAfter: '30' })
  time += 29_499
  await expect(send()).rejects.toMatchObject({ status: 429, retryAfter: '1' })
  time += 1

  expect(await send()).toMatchObject({ status: 'sent' })
})

test('Armed faults are used in their order, those for a recipient before those for all', async () => {
  const { sandbox, send } = await start()
  sandbox.arm([
    { kind: 'ok', messageId: 'all-1' },
    { kind: 'ok', messageId: 'all-2' },
  ])
  sandbox.arm({ kind: 'ok', messageId: 'bob' }, { to: 'bob@example.com', times: 2 })

  const ids = []
  for (const to of ['ada@example.com', 'bob@example.com', 'bob@example.com', 'bob@example.com'])
    ids.push((await send(to)).message_id)

  expect(ids).toEqual(['all-1', 'bob', 'bob', 'all-2'])
})

test('A fault armed for ever ends when it is disarmed', async () => {
  const { sandbox, send } = await start()
  sandbox.arm({ kind: 'null_id' }, { times: 'always' })

  const ids = [(await send()).message_id, (await send()).message_id]
  sandbox.disarm()

  expect(ids).toEqual([null, null])
  expect((await send()).message_id).not.toBeNull()
})

test.for([
  [{ kind: 'null_id', messageId: 'm1' }, true, 200, 'm1'],
  [{ kind: 'cut_after_accept', messageId: 'm1' }, true, null, 'm1'],
  [{ kind: 'cut_before_accept' }, false, null, null],
  [{ kind: 'status', status: 403, code: 'forbidden' }, false, 403, null],
  [{ kind: 'status', status: 504, accepted: true, body: '<html></html>', messageId: 'm1' }, true, 504, 'm1'],
  [{ kind: 'status', status: 500 }, false, 500, null],
  [{ kind: 'rate_limited', retryAfter: 2 }, false, 429, null],
  [{ kind: 'unreadable', messageId: 'm1' }, true, 200, 'm1'],
  [{ kind: 'odd_status', messageId: 'm1' }, true, 200, 'm1'],
] as const)('C-53 the ledger knows whether an email went out under %j', async ([fault, accepted, answer, messageId]) => {
  const { sandbox, send } = await start()
  sandbox.arm(fault)

  await send().catch(() => undefined)

  expect(sandbox.ledger).toEqual([expect.objectContaining({ fault: fault.kind, accepted, answer, messageId })])
})

test('C-60 a held answer comes when it is released, its email being out from the start', async () => {
  const { sandbox, send } = await start()
  sandbox.arm([
    { kind: 'hold', messageId: 'm1' },
    { kind: 'hold', accepted: false },
  ])

  const first = send()
  await expect.poll(() => sandbox.ledger.map((call) => [call.accepted, call.answer])).toEqual([[true, null]])
  const second = send().catch((error: unknown) => error)
  await expect.poll(() => sandbox.ledger.map((call) => call.fault)).toEqual(['hold', 'hold'])
  const released = sandbox.releaseHeld()

  expect(released).toBe(2)
  expect(await first).toEqual({ status: 'sent', message_id: 'm1' })
  expect(await second).toMatchObject({ status: 503 })
  expect(sandbox.ledger.map((call) => [call.accepted, call.answer])).toEqual([
    [true, 200],
    [false, 503],
  ])
})

test('C-52 a call that the caller gave up stays without an answer', async () => {
  const { sandbox } = await start()
  sandbox.arm({ kind: 'hold' })
  const hasty = new Inboxili('ik_test', { baseUrl: sandbox.url, timeout: 200, maxRetries: 0 })

  await expect(hasty.emails.send(message)).rejects.toBeInstanceOf(InboxiliConnectionError)
  await expect.poll(() => sandbox.ledger[0]?.endedAtMs).not.toBeNull()

  expect(sandbox.releaseHeld()).toBe(0)
  expect(sandbox.ledger).toEqual([expect.objectContaining({ accepted: true, answer: null })])
})

test('A hold with a time ends by itself', async () => {
  const { sandbox, send } = await start()
  sandbox.arm({ kind: 'hold', ms: 20, messageId: 'm1' })

  expect(await send()).toEqual({ status: 'sent', message_id: 'm1' })
})

test('Closing cuts held calls and abandons reports that are due', async () => {
  const { posts, webhook } = await receiver()
  const { sandbox, send } = await start({ webhook, reportDelayMs: 600_000 })
  await send()
  sandbox.arm({ kind: 'hold' })
  const held = send().catch((error: unknown) => error)
  await expect.poll(() => sandbox.requests).toBe(2)

  await sandbox.close()

  expect(await held).toBeInstanceOf(InboxiliConnectionError)
  expect(posts).toEqual([])
})

test('An accepted email is reported delivered, signed over the bytes of the body', async () => {
  const { posts, webhook } = await receiver()
  const { sandbox, send } = await start({ webhook })
  sandbox.arm({ kind: 'ok', messageId: 'm1' })

  await send()
  await sandbox.reportsSettled()

  expect(posts).toEqual([{ payload: report({}), isSigned: true }])
  expect(sandbox.reports).toEqual([{ payload: report({}), forged: false, attempts: 1, answer: 200, state: 'accepted' }])
})

test.for([
  [{ kind: 'cut_after_accept', messageId: 'm1' }, ['m1']],
  [{ kind: 'null_id', messageId: 'm1' }, ['m1']],
  [{ kind: 'status', status: 500, accepted: true, messageId: 'm1' }, ['m1']],
  [{ kind: 'status', status: 500 }, []],
  [{ kind: 'cut_before_accept' }, []],
] as const)('An email is reported if it went out, not if it was answered: %j', async ([fault, ids]) => {
  const { posts, webhook } = await receiver()
  const { sandbox, send } = await start({ webhook })
  sandbox.arm(fault)

  await send().catch(() => undefined)
  await sandbox.reportsSettled()

  expect(posts.map((post) => (post.payload as { message_id: string }).message_id)).toEqual(ids)
})

test.for([
  [{ kind: 'delivered', timestamp: '2026-01-01T00:00:00Z' }, [report({ timestamp: '2026-01-01T00:00:00Z' })]],
  [{ kind: 'bounced' }, [report({ event: 'bounced', type: 'hard' })]],
  [{ kind: 'bounced', type: 'soft' }, [report({ event: 'bounced', type: 'soft' })]],
  [{ kind: 'complained' }, [report({ event: 'complained' })]],
  [{ kind: 'never' }, []],
  [{ kind: 'late', ms: 20, event: 'bounced' }, [report({ event: 'bounced' })]],
  [{ kind: 'duplicate', copies: 3 }, [report({}), report({}), report({})]],
  [
    { kind: 'sequence', events: [{ event: 'bounced', type: 'hard' }, {}] },
    [report({ event: 'bounced', type: 'hard' }), report({})],
  ],
  [{ kind: 'sequence', events: [{}, { event: 'bounced' }] }, [report({}), report({ event: 'bounced' })]],
  [{ kind: 'custom', payload: { event: 'delivered', id: '$message_id', n: [42] } }, [{ event: 'delivered', id: 'm1', n: [42] }]],
] as const)('C-41 the report %j posts what it says', async ([armed, payloads]) => {
  const { posts, webhook } = await receiver()
  const { sandbox, send } = await start({ webhook })
  sandbox.arm({ kind: 'ok', messageId: 'm1' })
  sandbox.armReports(structuredClone(armed) as Parameters<typeof sandbox.armReports>[0])

  await send()
  await sandbox.reportsSettled()

  expect(posts).toEqual(payloads.map((payload) => ({ payload, isSigned: true })))
})

test('C-40 a report can be through before the API answers', async () => {
  const { posts, webhook } = await receiver(503)
  const { sandbox, send } = await start({ webhook })
  sandbox.arm({ kind: 'ok', messageId: 'm1' })
  sandbox.armReports({ kind: 'before_answer' })

  const answerOfReport = send().then(() => [posts.length, sandbox.reports[0]?.answer])

  expect(await answerOfReport).toEqual([2, 200])
})

test('A held report waits until it is let go', async () => {
  const { posts, webhook } = await receiver()
  const { sandbox, send } = await start({ webhook })
  sandbox.arm({ kind: 'ok', messageId: 'm1' })
  sandbox.armReports({ kind: 'hold', event: 'bounced', type: 'hard' })
  await send()
  await sandbox.reportsSettled()
  expect(posts).toEqual([])

  const delivered = await sandbox.deliverHeld()

  expect(delivered).toBe(1)
  expect(posts).toEqual([{ payload: report({ event: 'bounced', type: 'hard' }), isSigned: true }])
  expect(await sandbox.deliverHeld()).toBe(0)
})

test('A forged report has a wrong signature and is posted once', async () => {
  const { posts, webhook } = await receiver(401)
  const { sandbox, send } = await start({ webhook })
  sandbox.arm({ kind: 'ok', messageId: 'm1' })
  sandbox.armReports({ kind: 'forged' })

  await send()
  await sandbox.reportsSettled()

  expect(posts).toEqual([{ payload: report({}), isSigned: false }])
  expect(sandbox.reports).toEqual([{ payload: report({}), forged: true, attempts: 1, answer: 401, state: 'given_up' }])
})

test('A report that is not taken is posted again', async () => {
  const { posts, webhook } = await receiver(500)
  const { sandbox, send } = await start({ webhook })

  await send()
  await sandbox.reportsSettled()

  expect(posts).toHaveLength(2)
  expect(posts[1]).toEqual(posts[0])
  expect(sandbox.reports[0]).toMatchObject({ attempts: 2, answer: 200, state: 'accepted' })
})

test('Reports go to the webhook that was set last, and are given up without one', async () => {
  const { posts, webhook } = await receiver()
  const { sandbox, send } = await start()

  await send()
  await sandbox.reportsSettled()
  sandbox.setWebhook(webhook)
  await send()
  await sandbox.reportsSettled()

  expect(posts).toHaveLength(1)
  expect(sandbox.reports.map((one) => one.state)).toEqual(['given_up', 'accepted'])
})

test('Another process arms faults and reports over HTTP, and reads the ledger', async () => {
  const { posts, webhook } = await receiver()
  const { sandbox, send } = await start({ webhook })
  const control = (method: string, path: string, body?: unknown) => http(`${sandbox.url}/_sandbox/${path}`, method, body)

  const armed = [
    await control('POST', 'faults', { faults: [{ kind: 'ok', messageId: 'm1' }], to: 'ada@example.com' }),
    await control('POST', 'reports', { reports: [{ kind: 'hold' }], times: 2 }),
  ]
  await send()
  const delivered = await control('POST', 'reports/deliver')
  const ledger = await control('GET', 'ledger')

  expect(armed.map((answer) => answer.json)).toEqual([{ armed: 1 }, { armed: 1 }])
  expect(delivered.json).toEqual({ delivered: 1 })
  expect(posts).toEqual([{ payload: report({}), isSigned: true }])
  expect(ledger.json).toMatchObject({
    calls: [{ message, accepted: true, messageId: 'm1', answer: 200 }],
    reports: [{ state: 'accepted' }],
  })
})

test('Another process releases held calls, clears faults and posts one report', async () => {
  const { posts, webhook } = await receiver(200, 401)
  const { sandbox, send } = await start({ webhook })
  sandbox.armReports({ kind: 'never' }, { times: 'always' })
  sandbox.arm({ kind: 'hold', messageId: 'm1' })
  sandbox.arm({ kind: 'status', status: 500 }, { times: 'always' })
  const control = (method: string, path: string, body?: unknown) => http(`${sandbox.url}/_sandbox/${path}`, method, body)

  const held = send()
  await expect.poll(() => sandbox.ledger[0]?.fault).toBe('hold')
  const answers = [
    await control('POST', 'faults/release'),
    await control('DELETE', 'faults'),
    await control('POST', 'send-report', { payload: { event: 'delivered', message_id: 'nope' } }),
    await control('POST', 'send-report', { payload: { event: 'delivered' }, forged: true }),
  ]

  expect(answers.map((answer) => answer.json)).toEqual([{ released: 1 }, { armed: 0 }, { answer: 200 }, { answer: 401 }])
  expect(await held).toEqual({ status: 'sent', message_id: 'm1' })
  expect(await send()).toMatchObject({ status: 'sent' })
  expect(posts).toEqual([
    { payload: { event: 'delivered', message_id: 'nope' }, isSigned: true },
    { payload: { event: 'delivered' }, isSigned: false },
  ])
})

test('Faults and reports are mixed in at random, the same ones each time for a seed, wherever nothing else is armed', async () => {
  const mix = (seed: number) => ({
    seed,
    faults: [
      { rate: 0.3, fault: { kind: 'cut_after_accept' } },
      { rate: 0.2, fault: { kind: 'status', status: 503 } },
    ],
    reports: [{ rate: 0.5, report: { kind: 'never' } }],
  })
  const play = async (seed: number) => {
    const { posts, webhook } = await receiver()
    const { sandbox, send } = await start({ webhook })
    const answer = await http(`${sandbox.url}/_sandbox/faults/mix`, 'POST', mix(seed))
    expect(answer.json).toEqual({ mixed: 3 })
    sandbox.arm({ kind: 'null_id' })
    for (let call = 0; call < 60; call += 1) await send().catch(() => undefined)
    await sandbox.reportsSettled()
    await http(`${sandbox.url}/_sandbox/faults`, 'DELETE')
    for (let call = 0; call < 20; call += 1) await send()
    const met = sandbox.ledger.map(({ fault }) => fault ?? '-')
    return { met, reported: posts.length }
  }

  const [first, again, other] = [await play(7), await play(7), await play(8)]

  expect(again).toEqual(first)
  expect(other.met).not.toEqual(first.met)
  expect(first.met[0]).toBe('null_id')
  expect(first.met.slice(60)).toEqual(Array(20).fill('-'))
  // Of 59 calls 30 in a hundred, and 20 in a hundred.
  const count = (kind: string) => first.met.filter((it) => it === kind).length
  expect(count('cut_after_accept')).toBeGreaterThan(9)
  expect(count('cut_after_accept')).toBeLessThan(27)
  expect(count('status')).toBeGreaterThan(4)
  expect(count('status')).toBeLessThan(20)
  expect(first.reported).toBeGreaterThan(12)
  expect(first.reported).toBeLessThan(40)
})

test.for([
  [
    'faults/mix',
    {
      seed: 1,
      faults: [
        { rate: 0.6, fault: { kind: 'ok' } },
        { rate: 0.6, fault: { kind: 'null_id' } },
      ],
    },
    /more than 1/,
  ],
  ['faults/mix', { faults: [] }, /seed/],
  ['faults', { faults: [{ kind: 'explode' }] }, /kind/],
  ['faults', { faults: [{ kind: 'status', status: 42 }] }, /status/],
  ['faults', { faults: [{ kind: 'ok' }], until: 'noon' }, /until/],
  ['faults', { faults: [] }, /faults/],
  ['reports', { reports: [{ kind: 'duplicate', copies: 'many' }] }, /copies/],
  ['send-report', { event: 'delivered' }, /payload/],
  ['faults', 'not JSON', /./],
] as const)('A control request to %s with %j gets a 400 that says what is wrong', async ([path, body, text]) => {
  const { sandbox, send } = await start()

  const answer = await http(`${sandbox.url}/_sandbox/${path}`, 'POST', body)

  expect(answer.status).toBe(400)
  expect(answer.json).toEqual({ error: { code: 'bad_request', message: expect.stringMatching(text) } })
  expect(await send()).toMatchObject({ status: 'sent' })
})

test('A web page of another site can not use the controls', async () => {
  const { sandbox } = await start()

  const answer = await http(`${sandbox.url}/_sandbox/faults`, 'DELETE', undefined, { origin: 'https://evil.example' })

  expect(answer.status).toBe(403)
})
