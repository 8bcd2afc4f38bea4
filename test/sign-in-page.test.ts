import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingMessage, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import express, { type Express } from 'express'
import supertest from 'supertest'
import { describe, expect, test } from 'vitest'
import { pageRoutes } from '../src/ops/page/routes.ts'
import { createPasswords } from '../src/ops/passwords.ts'
import { createPerson, findPerson } from '../src/ops/people.ts'
import { disablePerson } from '../src/ops/person-changes.ts'
import { createSignInLink } from '../src/ops/sign-in-links.ts'
import { testDatabase } from './support/database.ts'
import { testPages } from './support/page.ts'
import { hexHmac, testService } from './support/service.ts'

const database = await testDatabase()
const { pool } = database

let hashed = 0
let busy: Promise<void> | undefined
const passwords = createPasswords(async (password, salt) => {
  hashed += 1
  await busy
  return Buffer.concat([Buffer.from(`${password}|${salt.toString('hex')}`), Buffer.alloc(32)]).subarray(0, 32)
})
const { app: plain, deps, cookies, get } = await testPages(database, undefined, { passwords })
const appOf = (more: Partial<typeof deps> = {}) =>
  express()
    .set('trust proxy', 1)
    .use(pageRoutes({ ...deps, ...more }))
const app = appOf()

const by = { actor: 'tester', via: 'test' }
const RIGHT = 'the right one'
async function addPerson(name: string): Promise<string> {
  return (await createPerson(pool, { name, role: 'operator', passwordHash: await passwords.hash(RIGHT) }, by))?.id ?? ''
}
let addresses = 0
function anAddress(): string {
  addresses += 1
  return `198.51.${Math.floor(addresses / 250)}.${addresses % 250}`
}

const post = (path: string, fields: Record<string, string>, headers: Record<string, string> = {}, on = app) =>
  supertest(on)
    .post(path)
    .set({ 'sec-fetch-site': 'same-origin', 'x-forwarded-for': anAddress(), ...headers })
    .type('form')
    .send(fields)
const signIn = (name: string, password: string, headers: Record<string, string> = {}, on = app) =>
  post('/ops/sign-in', { name, password }, headers, on)
const cookieOf = ({ headers }: supertest.Response): string => String(headers['set-cookie']?.[0]).split(';')[0] ?? ''
const isIn = async (cookie: string) => (await supertest(app).get('/ops/events').set('cookie', cookie)).status === 200
const sessions = async () => (await pool.query('select count(*)::int as count from sessions')).rows[0].count
const linkFor = async (name: string) =>
  (await createSignInLink(pool, { person: (await findPerson(pool, name))?.id ?? '', minutes: 15 }, by)) ?? ''

describe('signing in with a password', () => {
  test('leads to the overview, or to the page that was asked for, with a cookie that scripts and other sites can not use', async () => {
    await addPerson('ann')

    const asked = await supertest(app).get('/ops/events?status=failed')
    expect([asked.status, asked.headers.location]).toEqual([303, '/ops/sign-in?to=%2Fops%2Fevents%3Fstatus%3Dfailed'])
    expect((await supertest(app).get('/ops/events?done=1')).headers.location).toBe('/ops/sign-in?to=%2Fops%2Fevents')
    const form = await supertest(app).get(asked.headers.location ?? '')
    expect(form.text).toContain('<input type="hidden" name="to" value="/ops/events?status=failed">')
    const answer = await post('/ops/sign-in', { name: 'ann', password: RIGHT, to: '/ops/events?status=failed' })

    expect([answer.status, answer.headers.location]).toEqual([303, '/ops/events?status=failed'])
    expect(answer.headers['set-cookie']).toEqual([expect.stringMatching(/^oncehook=[\w-]{43}; Path=\/; HttpOnly; SameSite=Lax$/)])
    expect(await isIn(cookieOf(answer))).toBe(true)
    expect((await signIn('ann', RIGHT)).headers.location).toBe('/ops')
  })

  test('over HTTPS the cookie is Secure and of this host only, whether a proxy or PUBLIC_URL says so', async () => {
    await addPerson('secure')
    const behind = await signIn('secure', RIGHT, { 'x-forwarded-proto': 'https' })
    const published = await signIn('secure', RIGHT, {}, appOf({ publicUrl: 'https://hooks.example.com' }))

    for (const answer of [behind, published])
      expect(answer.headers['set-cookie']).toEqual([
        expect.stringMatching(/^__Host-oncehook=[\w-]{43}; Path=\/; HttpOnly; SameSite=Lax; Secure$/),
      ])
    // A cookie of plain HTTP, which others may have set, is none over HTTPS.
    const stripped = cookieOf(behind).replace('__Host-', '')
    const answer = await supertest(app).get('/ops/events').set({ cookie: stripped, 'x-forwarded-proto': 'https' })
    expect(answer.status).toBe(303)
  })

  test.each([
    'https://evil.example/',
    '//evil.example/ops',
    '/ops@evil.example',
    '/opsx',
    '/ops/../v1/sends',
    '/ops\\evil.example',
    '/ops/\u0000x',
    '/ops/sign-out',
    '/ops/sign-in?to=/ops',
    'javascript:alert(1)',
  ])('after signing in %j is no place to go', async (to) => {
    if (!(await findPerson(pool, 'redirected'))) await addPerson('redirected')

    expect((await post('/ops/sign-in', { name: 'redirected', password: RIGHT, to })).headers.location).toBe('/ops')
    expect((await get(`/ops/sign-in?to=${encodeURIComponent(to)}`)).headers.location).toBe('/ops')
  })

  test('a wrong password, an unknown name and a disabled person get the same page after the same work', async () => {
    await addPerson('known')
    await disablePerson(pool, await addPerson('gone'), by)
    const pages: string[] = []

    for (const [name, password] of [
      ['known', 'a wrong one'],
      ['unknown', RIGHT],
      ['gone', RIGHT],
    ] as const) {
      const before = hashed
      const answer = await signIn(name, password)
      expect(answer.status).toBe(401)
      expect(answer.headers['set-cookie']).toBeUndefined()
      expect(hashed - before).toBe(1)
      pages.push(answer.text.replaceAll(name, 'NAME'))
    }

    expect(new Set(pages).size).toBe(1)
    expect(pages[0]).toContain('The name or the password is wrong.')
    expect(pages[0]).toContain('value="NAME"')
    expect(pages[0]).not.toContain('a wrong one')
  })

  test('after ten tries a name is told to wait, the same for one that nobody has', async () => {
    await addPerson('tried')
    const answers: unknown[] = []
    for (const name of ['tried', 'nobody']) {
      for (let index = 0; index < 10; index += 1) expect((await signIn(name, 'guess')).status).toBe(401)
      const { status, headers, text } = await signIn(name, RIGHT)
      expect(Number(headers['retry-after'])).toBeGreaterThan(800)
      answers.push({ status, text: text.replaceAll(name, 'NAME').replace(/in \d+ min( \d+ s)?/, 'later') })
    }

    expect(answers[0]).toMatchObject({ status: 429 })
    expect(answers[1]).toEqual(answers[0])
  })

  test('the tries of one address count whatever it claims to come by', async () => {
    const statuses: number[] = []
    for (let index = 0; index < 40; index += 1)
      statuses.push((await signIn(`guess-${index}`, 'guess', { 'x-forwarded-for': `192.0.2.${index}, 203.0.113.9` })).status)

    expect(statuses.filter((status) => status === 401)).toHaveLength(30)
    expect(statuses.slice(30)).toEqual(Array(10).fill(429))
  })

  test('the tries of one IPv6 network count together', async () => {
    const statuses: number[] = []
    for (let index = 0; index < 31; index += 1)
      statuses.push((await signIn(`six-${index}`, 'guess', { 'x-forwarded-for': `2001:db8:1:1::${index.toString(16)}` })).status)

    expect(statuses.at(-1)).toBe(429)
  })

  test('I18 more passwords at once than can be checked are told to come again', async () => {
    const gate = Promise.withResolvers<void>()
    busy = gate.promise
    const answers: supertest.Response[] = []

    const asked = Array.from({ length: 23 }, async (_, index) => answers.push(await signIn(`held-${index}`, 'guess')))
    // All others are still being checked, or wait for it.
    await expect.poll(() => answers.length).toBe(1)
    gate.resolve()
    busy = undefined
    await Promise.all(asked)

    const [refused, ...rest] = answers
    expect([refused?.status, refused?.headers['retry-after']]).toEqual([503, '2'])
    expect(refused?.text).toContain('Too many people sign in at this moment.')
    expect(rest.map(({ status }) => status)).toEqual(Array(22).fill(401))
  })

  test('a session that somebody else has chosen is not taken over, and the one before ends', async () => {
    await addPerson('fixed')
    const planted = `oncehook=${'A'.repeat(43)}`

    const first = cookieOf(await signIn('fixed', RIGHT, { cookie: planted }))
    const second = cookieOf(await signIn('fixed', RIGHT, { cookie: first }))

    expect(new Set([planted, first, second]).size).toBe(3)
    expect([await isIn(planted), await isIn(first), await isIn(second)]).toEqual([false, false, true])
  })
})

describe('being signed in', () => {
  test('ends with the sign-out at once, wherever the cookie was copied to', async () => {
    await addPerson('leaver')
    const cookie = cookieOf(await signIn('leaver', RIGHT))

    const answer = await post('/ops/sign-out', {}, { cookie })

    expect([answer.status, answer.headers.location]).toEqual([303, '/ops/sign-in'])
    expect(answer.headers['set-cookie']).toEqual(['oncehook=; Path=/; HttpOnly; SameSite=Lax; Max-Age=0'])
    expect(await isIn(cookie)).toBe(false)
  })

  test('ends with the next request once the person is disabled', async () => {
    const person = await addPerson('dismissed')
    const cookie = cookieOf(await signIn('dismissed', RIGHT))
    expect(await isIn(cookie)).toBe(true)

    await disablePerson(pool, person, by)

    expect(await isIn(cookie)).toBe(false)
    expect((await signIn('dismissed', RIGHT)).status).toBe(401)
  })

  test('is not interrupted by strangers who try the name', async () => {
    await addPerson('harassed')
    const cookie = cookieOf(await signIn('harassed', RIGHT))
    for (let index = 0; index < 12; index += 1) await signIn('harassed', 'guess')

    expect(await isIn(cookie)).toBe(true)
    const code = await linkFor('harassed')
    expect((await post('/ops/sign-in/link', { code })).status).toBe(303)
  })
})

describe('a one-time link', () => {
  test('opens a page whose button signs in: looking at it, however often, uses nothing up', async () => {
    await addPerson('linked')
    const code = await linkFor('linked')
    const before = await sessions()

    for (const method of ['get', 'head', 'get'] as const) {
      const page = await supertest(app)[method](`/ops/sign-in?code=${code}`)
      expect(page.status).toBe(200)
      expect(page.headers['set-cookie']).toBeUndefined()
      expect(page.headers['cache-control']).toBe('no-store')
      if (method === 'get') expect(page.text).toContain('Sign in as linked')
    }
    expect(await sessions()).toBe(before)

    const answer = await post('/ops/sign-in/link', { code })
    expect([answer.status, answer.headers.location]).toEqual([303, '/ops'])
    expect(await isIn(cookieOf(answer))).toBe(true)
  })

  test('signs in one of twenty who use it at once, and tells the others', async () => {
    await addPerson('raced')
    const code = await linkFor('raced')

    const answers = await Promise.all(Array.from({ length: 20 }, () => post('/ops/sign-in/link', { code })))

    const statuses = answers.map(({ status }) => status).sort()
    expect(statuses).toEqual([303, ...Array(19).fill(410)])
    expect(answers.filter(({ headers }) => headers['set-cookie'])).toHaveLength(1)
    const looked = await supertest(app).get(`/ops/sign-in?code=${code}`)
    expect([looked.status, looked.text.includes('was used before')]).toEqual([410, true])
  })

  test('a second click by whoever it signed in leads on', async () => {
    await addPerson('clicker')
    const code = await linkFor('clicker')
    const cookie = cookieOf(await post('/ops/sign-in/link', { code }))

    const again = await post('/ops/sign-in/link', { code }, { cookie })

    expect([again.status, again.headers.location]).toEqual([303, '/ops'])
    expect(await isIn(cookie)).toBe(true)
  })

  test.each(['short', 'x'.repeat(43), '<script>alert(1)</script>'])('%j is none', async (code) => {
    const page = await supertest(app).get('/ops/sign-in').query({ code })

    expect(page.status).toBe(410)
    expect(page.text).not.toContain('<script>alert')
    expect((await post('/ops/sign-in/link', { code })).status).toBe(410)
  })
})

describe('a form that is sent when the session is over', () => {
  const fields = { form: randomUUID(), filter: 'invoice & "more"', reason: '<b>seen</b> in the log' }

  test('comes back filled after signing in, and is sent only when its button is pressed', async () => {
    await addPerson('typist')

    const over = await post('/ops/sends/a%2Fb/resolve?x=1', fields)
    const carried = Object.fromEntries(
      [...over.text.matchAll(/<input type="hidden" name="(kept\w*)" value="([^"]*)">/g)].map(([, name, value]) => [
        name,
        (value ?? '').replaceAll('&quot;', '"').replaceAll('&lt;', '<').replaceAll('&gt;', '>').replaceAll('&amp;', '&'),
      ]),
    )
    const wrong = await post('/ops/sign-in', { name: 'typist', password: 'slip', ...carried })
    const back = await post('/ops/sign-in', { name: 'typist', password: RIGHT, ...carried })

    expect([over.status, wrong.status, back.status]).toEqual([401, 401, 200])
    expect(over.text).toContain('Your session is over, and nothing was changed.')
    expect(wrong.text).toContain('name="kept"')
    expect(await isIn(cookieOf(back))).toBe(true)
    expect(back.text).toContain('<form action="/ops/sends/a%2Fb/resolve?x=1" method="post">')
    expect(back.text).toContain(`<input type="hidden" name="form" value="${fields.form}">`)
    expect(back.text).toContain('<input type="hidden" name="filter" value="invoice &amp; &quot;more&quot;">')
    expect(back.text).toContain('<dd>&lt;b&gt;seen&lt;/b&gt; in the log</dd>')
    expect(back.text).not.toContain('<b>seen')
  })

  test('a password in it is not written into a page', async () => {
    const over = await post('/ops/settings/password', { form: randomUUID(), current_password: 'hunter2hunter2', next: 'x' })

    expect(over.status).toBe(401)
    expect(over.text).not.toContain('hunter2')
    expect(over.text).not.toContain('name="kept"')
  })

  const letters = (bytes: number) => ({ reason: 'x'.repeat(bytes - 'reason='.length) })

  test('I18 is kept up to 20 kB, and what is larger has to be typed again', async () => {
    const most = await post('/ops/review/decide/x', letters(19_900))
    const larger = await post('/ops/review/decide/x', letters(20_001))
    const growing = await post('/ops/review/decide/x', { a: '\u0001'.repeat(5_000) })

    expect([most.status, larger.status, growing.status]).toEqual([401, 401, 401])
    expect(most.text).toContain('what you sent comes back filled')
    for (const { text } of [larger, growing]) {
      expect(text).toContain('Sign in and do it again.')
      expect(text).not.toContain('name="kept"')
      expect(text.length).toBeLessThan(5_000)
    }
  })

  test('I18 a body that is too large is not read: who says so is answered before it comes', async () => {
    const server = createServer(app).listen(0)
    const { port } = server.address() as AddressInfo
    const asked = request({
      port,
      method: 'POST',
      path: '/ops/review/decide/x',
      headers: {
        'content-type': 'application/x-www-form-urlencoded',
        'content-length': '399000',
        'sec-fetch-site': 'same-origin',
        'x-forwarded-for': anAddress(),
      },
    })
    asked.on('error', () => undefined)
    asked.flushHeaders()

    const [answer] = (await once(asked, 'response')) as [IncomingMessage]
    asked.destroy()
    server.close()

    expect(answer.statusCode).toBe(401)
  })

  test('I18 from one address only so many are taken in a minute, and others are not kept out', async () => {
    const flooding = appOf()
    const from = (address: string) => post('/ops/review/decide/x', { a: 'b' }, { 'x-forwarded-for': address }, flooding)
    const statuses: number[] = []
    for (let count = 0; count < 61; count += 1) statuses.push((await from('203.0.113.9')).status)

    expect(statuses).toEqual([...Array<number>(60).fill(401), 429])
    const refused = await from('203.0.113.9')
    expect([refused.headers['retry-after'], refused.text.includes('Too many forms from this address')]).toEqual(['60', true])
    expect((await from('203.0.113.10')).status).toBe(401)
    expect((await supertest(flooding).get('/ops/sign-in').set('x-forwarded-for', '203.0.113.9')).status).toBe(200)
  })

  test('C-68 what another site has sent is not shown again', async () => {
    const foreign = await post('/ops/sends/a/resolve', fields, { 'sec-fetch-site': 'cross-site' })

    expect(foreign.status).toBe(403)
    expect(foreign.text).not.toContain('invoice')
  })

  test.each([
    { kept_path: 'https://evil.example/ops', kept: '[["a","b"]]' },
    { kept_path: '/v1/sends', kept: '[["a","b"]]' },
    { kept_path: '/ops/sends', kept: 'not JSON' },
    { kept_path: '/ops/sends', kept: '[["a",{"b":1}]]' },
    { kept_path: '/ops/sends', kept: `[["a","${'x'.repeat(20_000)}"]]` },
  ])('what could not have been carried is forgotten: %j', async (carried) => {
    if (!(await findPerson(pool, 'carrier'))) await addPerson('carrier')

    const answer = await post('/ops/sign-in', { name: 'carrier', password: RIGHT, ...carried })

    expect([answer.status, answer.headers.location]).toEqual([303, '/ops'])
  })
})

describe('C-68 state changes need an intended request of our own page', () => {
  interface Layer {
    route?: { path: string; methods: Record<string, boolean> }
    handle: { stack?: Layer[] }
  }
  /** Every path of the page and what it takes, from the routers themselves. */
  function routesOf(layers: readonly Layer[]): { path: string; methods: string[] }[] {
    return layers.flatMap(({ route, handle }) =>
      route
        ? [{ path: route.path.replaceAll(/:\w+/g, '1'), methods: Object.keys(route.methods) }]
        : handle.stack
          ? routesOf(handle.stack)
          : [],
    )
  }
  // Express types its routers without what is in them.
  const routes = routesOf((plain as Express & { router: { stack: Layer[] } }).router.stack)
  const actions = [...new Set(routes.filter(({ methods }) => methods.includes('post')).map(({ path }) => path))]
  const pages = routes.filter(({ methods }) => methods.includes('get')).map(({ path }) => path)
  const everything = async () => {
    const { rows } =
      await pool.query(`select (select count(*)::int from audit_log) as audits, (select count(*)::int from sessions) as sessions,
      (select count(*)::int from email_sends) as sends, (select count(*)::int from form_submissions) as forms`)
    return rows[0]
  }

  test('no GET of an action changes anything', async () => {
    const before = await everything()
    expect(actions).toEqual(expect.arrayContaining(['/ops/sign-in', '/ops/sign-in/link', '/ops/sign-out']))

    for (const path of actions.filter((action) => !pages.includes(action)))
      expect([404, 405], path).toContain((await get(`${path}?form=${randomUUID()}&reason=x`)).status)

    expect(await everything()).toEqual(before)
  })

  test('no action takes a request of another site, without an origin, or without a session', async () => {
    const before = await everything()
    const foreign: Record<string, string>[] = [
      { 'sec-fetch-site': 'cross-site' },
      { 'sec-fetch-site': 'same-site' },
      { origin: 'https://evil.example' },
      { origin: 'null' },
      {},
    ]

    for (const path of actions) {
      for (const headers of foreign) {
        const answer = await supertest(plain)
          .post(path)
          .set({ cookie: cookies.operator, ...headers })
          .type('form')
          .send({ form: randomUUID(), reason: 'x' })
        expect(answer.status, `${path} ${JSON.stringify(headers)}`).toBe(403)
      }
      if (path.startsWith('/ops/sign-')) continue
      const unknown = await supertest(plain).post(path).set('sec-fetch-site', 'same-origin').type('form').send({ reason: 'x' })
      expect(unknown.status, path).toBe(401)
      expect(unknown.text).toContain('Sign in')
    }

    expect(await everything()).toEqual(before)
  })

  test('forms work over plain HTTP too, where browsers send the Origin alone: as long as the page lets them', async () => {
    const page = await supertest(app).get('/ops/sign-in')
    const form = supertest(app).post('/ops/sign-in').set({ host: 'hooks.lan:3000', origin: 'http://hooks.lan:3000' })

    // With `no-referrer` the Origin of a form is `null` by the Fetch standard.
    expect(page.headers['referrer-policy']).toBe('same-origin')
    expect((await form.type('form').send({ name: 'by-plain-http', password: 'x' })).status).toBe(401)
  })

  test('the API takes no cookie: only tokens', async () => {
    const { opsRoutes } = await import('../src/ops/routes.ts')
    const api = express().use(opsRoutes(deps))

    const answer = await supertest(api)
      .post('/v1/sending')
      .set({ cookie: cookies.operator, 'sec-fetch-site': 'same-origin' })
      .send({ paused: true, version: 1, reason: 'x' })

    expect(answer.status).toBe(401)
  })

  test('the webhook routes take a valid signature from anywhere, and nothing else, cookie or not', async () => {
    const shop = {
      provider: 'generic',
      secrets: ['shop-secret'],
      header: 'x-signature',
      algorithm: 'sha256',
      encoding: 'hex',
      id: 'id',
      type: 'type',
    } as const
    const service = await testService(database, { sources: { shop } })
    const body = '{"id":"evt_1","type":"paid"}'
    const send = (signature: string) =>
      supertest(service.app)
        .post('/webhooks/shop')
        .set({
          cookie: cookies.operator,
          origin: 'https://evil.example',
          'sec-fetch-site': 'cross-site',
          'x-signature': signature,
        })
        .type('json')
        .send(body)

    expect((await send(hexHmac(body, 'shop-secret'))).status).toBe(200)
    expect((await send(hexHmac(body, 'another'))).status).toBe(401)
  })
})
