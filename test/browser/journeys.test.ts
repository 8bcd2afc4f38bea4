import type { Page } from 'playwright-core'
import { describe, expect, test } from 'vitest'
import { hasNoBrowser, openTab } from '../support/browser.ts'
import { testDatabase } from '../support/database.ts'
import { openOpsStage, paidInvoice } from '../support/ops-stage.ts'

const database = await testDatabase()
const stage = await openOpsStage(database)
const { baseURL, cookies, service } = stage

// Delivered; unknown with a report that fits; unknown without; and an event that no rule wants.
await stage.postStripe(paidInvoice('evt_1042', 'INV-1042', 'ada@example.com'))
await stage.work()
service.sandbox.armReports({ kind: 'never' }, { times: 'always' })
service.sandbox.arm({ kind: 'cut_after_accept' }, { times: 2 })
await stage.postStripe(paidInvoice('evt_1050', 'INV-1050', 'bob@example.com'))
await stage.work()
await stage.postStripe(paidInvoice('evt_1051', 'INV-1051', 'cy@example.com'))
await stage.work()
await stage.postStripe(
  JSON.stringify({
    id: 'evt_7',
    object: 'event',
    type: 'charge.disputed',
    created: 1,
    livemode: true,
    data: { object: { id: 'dp_77' } },
  }),
)
await stage.work()

/** A tab on the overview, and a count of the steps that a person takes: a click, a key, or a paste with Enter. */
async function start(options: { javaScriptEnabled?: boolean } = {}) {
  const tab = await openTab({ baseURL, cookie: cookies.operator, viewport: { width: 1280, height: 720 }, ...options })
  await tab.page.goto('/ops')
  let steps = 0
  return {
    ...tab,
    steps: () => steps,
    async click(name: string | RegExp, role: 'link' | 'button' = 'link') {
      steps += 1
      await tab.page.getByRole(role, { name }).first().click()
      await tab.page.waitForLoadState()
    },
    async press(key: string) {
      steps += 1
      await tab.page.keyboard.press(key)
      await tab.page.waitForLoadState()
    },
    async paste(text: string) {
      steps += 1
      await tab.page.locator(':focus').fill(text)
      await tab.page.keyboard.press('Enter')
      await tab.page.waitForLoadState()
    },
  }
}

const mainText = (page: Page) => page.locator('main').innerText()

describe.skipIf(hasNoBrowser)('the five questions', () => {
  test('1: did the customer get the receipt? Two steps from any page, and the first line is the answer', async () => {
    const { page, press, paste, steps, troubles } = await start()

    await press('/')
    await paste('INV-1042')

    expect(steps()).toBe(2)
    await page.waitForURL('**/ops/sends/**')
    const answer = page.getByText(/^Delivered to ada@example\.com at .* reported by Inboxili\. Sent once, 1 call\./).first()
    const box = await answer.boundingBox()
    expect((box?.y ?? 999) + (box?.height ?? 999)).toBeLessThan(720)
    await page.setViewportSize({ width: 390, height: 844 })
    const small = await answer.boundingBox()
    expect((small?.y ?? 999) + (small?.height ?? 999)).toBeLessThan(844)
    expect(troubles).toEqual([])
  })

  test('1: without a hit the page says what was searched and where the chain broke', async () => {
    const { page, press, paste } = await start()

    await press('/')
    await paste('dp_77')

    await expect.poll(() => mainText(page)).toMatch(/no rule/i)
    expect(await mainText(page)).toContain('evt_7')
    await press('/')
    await paste('INV-9999')
    await expect.poll(() => mainText(page)).toMatch(/no event/i)
  })

  test('2: what needs my decision? One step to the oldest case with its evidence; three more, and the next is open', async () => {
    const { page, press, steps, troubles } = await start()

    await press('g')
    await page.keyboard.press('r')
    await page.waitForURL('**/ops/review**')
    // `g` `r` is one shortcut.
    expect(steps()).toBe(1)
    await expect.poll(() => mainText(page)).toContain('invoice:INV-1050:paid')
    expect(await mainText(page)).toMatch(/We don't know whether this email was sent/)
    expect(await mainText(page)).toMatch(/Evidence/)

    await press('1')
    await page.keyboard.type('seen in the sending log')
    await press('Control+Enter')

    expect(steps()).toBe(3)
    await expect
      .poll(
        async () => (await database.pool.query(`select state from email_sends where dedupe_key = 'invoice:INV-1050:paid'`)).rows,
      )
      .toEqual([{ state: 'sent' }])
    await expect.poll(() => page.locator('#status').innerText()).toMatch(/INV-1050/)
    expect(await mainText(page)).toContain('invoice:INV-1051:paid')
    expect(troubles).toEqual([])
  })

  test('3: is anything stuck? No step: six cells in words, the worst in the title, and a fault shows by itself', async () => {
    const { page, troubles } = await start()

    for (const cell of ['Receiving', 'Processing', 'Sending', 'Delivery reports', 'Decisions', 'Storage'])
      expect(await mainText(page)).toContain(cell)
    const before = await page.title()
    await database.pool.query(
      `update sending_control set held_reason = 'the API key was refused (401)', held_at = now(), version = version + 1`,
    )

    await expect.poll(() => mainText(page)).toMatch(/paused|held/i)
    await expect.poll(() => page.title()).not.toBe(before)
    await database.pool.query('update sending_control set held_reason = null, held_at = null, version = version + 1')
    await expect.poll(() => page.title()).toBe(before)
    expect(troubles).toEqual([])
  })

  test('4: what happened with this event? Two steps to its story, and the next link leads to its send', async () => {
    const { page, press, paste, click, steps, troubles } = await start()

    await press('/')
    await paste('evt_1042')

    expect(steps()).toBe(2)
    await page.waitForURL('**/ops/events/*')
    const text = await mainText(page)
    expect(text).toMatch(/verified by secret 1/)
    expect(text).toContain('invoice:INV-1042:paid')
    await click('invoice:INV-1042:paid')
    await page.waitForURL('**/ops/sends/**')
    expect(troubles).toEqual([])
  })

  test('5: can I safely replay last night? Four clicks, the third shows what it would do, and nothing goes out twice', async () => {
    const { page, click, steps, troubles } = await start()
    await database.pool.query(
      // One o'clock of the night that has ended last.
      `update webhook_events set received_at = date_trunc('day', now() - interval '6 hours', 'UTC') + interval '1 hour'
       where event_id like 'evt_%'`,
    )
    const calls = service.sandbox.requests

    await click('Events')
    await click('Last night')
    await click('Replay these…', 'button')
    await expect.poll(() => mainText(page)).toMatch(/Dry run: nothing has happened/)
    expect(steps()).toBe(3)
    expect(await mainText(page)).toMatch(/0 emails would be sent/)
    await click(/Start replay of these/, 'button')

    expect(steps()).toBe(4)
    await expect.poll(() => mainText(page)).toMatch(/gone through/)
    await stage.work()
    expect(service.sandbox.requests).toBe(calls)
    expect(troubles).toEqual([])
  })

  test('all of them can be answered without JavaScript', async () => {
    const { page, click } = await start({ javaScriptEnabled: false })
    const search = async (text: string) => {
      await page.locator('#search').fill(text)
      await Promise.all([page.waitForEvent('load'), page.keyboard.press('Enter')])
    }

    await search('INV-1042')
    expect(await mainText(page)).toMatch(/Delivered to ada@example\.com/)
    await search('evt_1042')
    expect(await mainText(page)).toMatch(/verified by secret 1/)
    await click(/Needs a decision/)
    expect(await mainText(page)).toContain('invoice:INV-1051:paid')
    await click('Overview')
    expect(await mainText(page)).toContain('Receiving')
    await click('Events')
    await click('Last night')
    await click('Replay these…', 'button')
    expect(await mainText(page)).toMatch(/Dry run: nothing has happened/)
  })
})
