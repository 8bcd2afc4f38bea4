import type { Page } from 'playwright-core'
import { describe, expect, test } from 'vitest'
import { hasNoBrowser, openTab, type Tab } from '../support/browser.ts'
import { testDatabase } from '../support/database.ts'
import { openOpsStage, paidInvoice } from '../support/ops-stage.ts'

const database = await testDatabase()
const stage = await openOpsStage(database)
const { baseURL, cookies, service, server } = stage

const mainText = (page: Page) => page.locator('main').innerText()
const sign = (page: Page) => page.locator('[data-stream]:not(html)')
const address = (number: string) => `/ops/review?key=${encodeURIComponent(`invoice:${number}:paid`)}`

/** A send of which nobody knows whether it went out. */
async function openUnknown(number: string): Promise<void> {
  service.sandbox.armReports({ kind: 'never' })
  service.sandbox.arm({ kind: 'cut_after_accept' })
  await stage.postStripe(paidInvoice(`evt_${number}`, number, 'ada@example.com'))
  await stage.work()
}

/** Decides what stands open in a tab, by its keys. */
async function decide({ page }: Tab, key: '1' | '2', reason: string): Promise<void> {
  await page.keyboard.press(key)
  await page.keyboard.type(reason)
  await Promise.all([page.waitForEvent('load'), page.keyboard.press('Control+Enter')])
}

const stateOf = async (number: string) =>
  (await database.pool.query('select state from email_sends where dedupe_key = $1', [`invoice:${number}:paid`])).rows[0]?.state

describe.skipIf(hasNoBrowser)('pages that are open', () => {
  test('I16 of two browsers that decide at once one is heard, and the other is told what happened with its reason kept', async () => {
    await openUnknown('INV-1')
    const [mia, rob] = await Promise.all([
      openTab({ baseURL, cookie: cookies.operator }),
      openTab({ baseURL, cookie: cookies.operator }),
    ])
    await mia.page.goto(address('INV-1'))
    await rob.page.goto(address('INV-1'))

    await decide(mia, '1', 'the customer has it')
    await decide(rob, '2', 'not in the sending log')

    expect(await stateOf('INV-1')).toBe('sent')
    const text = await mainText(rob.page)
    expect(text).toMatch(/While you had this open:/)
    expect(text).toContain('Your decision was not saved.')
    expect(text).toMatch(/When you opened it/)
    expect(await rob.page.locator('input[name=reason]').first().inputValue()).toBe('not in the sending log')
    await rob.page.getByText('Keep this', { exact: true }).click()
    await rob.page.waitForLoadState()
    expect(await stateOf('INV-1')).toBe('sent')
    expect(mia.troubles).toEqual([])
  })

  test('what is copied of a list is an address with instants, and the address bar keeps what was typed', async () => {
    const { page, troubles } = await openTab({
      baseURL,
      cookie: cookies.operator,
      permissions: ['clipboard-read', 'clipboard-write'],
    })
    await page.goto('/ops/audit?since=2026-11-29+22%3A00')

    await page.getByRole('button', { name: 'Copy link' }).click()

    await page.getByText('Copied.').waitFor()
    expect(await page.evaluate(() => navigator.clipboard.readText())).toBe(
      `${baseURL}/ops/audit?since=2026-11-29T22%3A00%3A00.000Z`,
    )
    expect(page.url()).toBe(`${baseURL}/ops/audit?since=2026-11-29+22%3A00`)
    expect(troubles).toEqual([])
  })

  test('a list counts what is new and shows it when asked; what changes is changed in place', async () => {
    await openUnknown('INV-2')
    const { page, troubles } = await openTab({ baseURL, cookie: cookies.operator })
    await page.goto('/ops/sends')
    await sign(page).getByText('Live').waitFor()
    const row = page.locator('[data-row="invoice:INV-2:paid"]')
    expect(await row.innerText()).toMatch(/Needs a decision/)

    await stage.postStripe(paidInvoice('evt_INV-3', 'INV-3', 'ada@example.com'))
    await stage.work()
    await page.getByRole('link', { name: '1 new · Show' }).waitFor()
    const other = await openTab({ baseURL, cookie: cookies.operator })
    await other.page.goto(address('INV-2'))
    await decide(other, '1', 'the customer has it')
    await expect.poll(() => row.innerText()).toMatch(/Sent, not confirmed/)
    expect(await page.locator('[data-row="invoice:INV-3:paid"]').count()).toBe(0)
    await page.getByRole('link', { name: '1 new · Show' }).click()

    await page.locator('[data-row="invoice:INV-3:paid"]').waitFor()
    expect(troubles).toEqual([])
  })

  test('six tabs share one stream, the seventh opens, and when the tab with the stream goes another takes it', async () => {
    const tab = await openTab({ baseURL, cookie: cookies.operator })
    const { page: first } = tab
    await first.goto('/ops')
    await sign(first).getByText('Live').waitFor()
    const streams = new Set<Page>()
    first.context().on('request', (request) => {
      if (request.url().endsWith('/ops/stream')) streams.add(request.frame().page())
    })
    const others: Page[] = []
    for (let count = 2; count <= 6; count += 1) {
      const page = await first.context().newPage()
      await page.goto('/ops')
      others.push(page)
    }
    const seventh = await first.context().newPage()
    await seventh.goto('/ops/sends', { timeout: 10_000 })
    expect(await mainText(seventh)).toContain('Sends')
    expect(streams.size).toBe(0)

    await first.close()
    await expect.poll(() => streams.size).toBe(1)
    await database.pool.query(`update sending_control set held_reason = 'by the test', held_at = now(), version = version + 1`)
    for (const page of others) await expect.poll(() => page.locator('#banners').innerText()).toMatch(/Sending is paused/)
    await database.pool.query('update sending_control set held_reason = null, held_at = null, version = version + 1')
  })

  test('a page whose stream is cut says so, works on, and is live again when the stream is', async () => {
    const { page } = await openTab({ baseURL, cookie: cookies.operator })
    await page.goto('/ops')
    await sign(page).getByText('Live', { exact: true }).waitFor()

    server.closeAllConnections()
    await sign(page)
      .getByText(/^Live updates stopped \d\d:\d\d/)
      .waitFor()
    await page.getByRole('link', { name: 'Sends', exact: true }).click()
    await page.waitForURL('**/ops/sends')
    expect(await mainText(page)).toContain('INV-1')
    await sign(page).getByText('Live', { exact: true }).waitFor()
  })

  test('live updates can be paused, and go on with what was missed', async () => {
    const { page } = await openTab({ baseURL, cookie: cookies.operator })
    await page.goto('/ops')
    await sign(page).getByText('Live', { exact: true }).waitFor()
    await page.locator('.person summary').click()
    await page.getByRole('button', { name: 'Pause live updates' }).click()
    const refreshed: string[] = []
    page.on('request', (request) => refreshed.push(request.url()))

    await openUnknown('INV-4')
    const count = () => page.locator('#review-count').innerText()
    const before = await count()
    expect(refreshed).toEqual([])
    await page.getByRole('button', { name: 'Go on with live updates' }).click()

    await expect.poll(count).not.toBe(before)
  })
})
