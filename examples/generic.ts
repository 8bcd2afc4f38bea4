import { defineConfig, env, key } from 'oncehook'

// A shop of our own: it signs the body by HMAC-SHA256 and says so in a header of its own.
export default defineConfig({
  sources: {
    shop: {
      provider: 'generic',
      secrets: env.list('SHOP_WEBHOOK_SECRETS'),
      header: 'x-shop-signature',
      prefix: 'sha256=',
      algorithm: 'sha256',
      encoding: 'hex',
      id: 'id',
      type: 'type',
    },
    inboxili: { provider: 'inboxili', secrets: env.list('INBOXILI_WEBHOOK_SECRETS') },
  },
  followUps: [
    {
      name: 'order confirmation',
      source: 'shop',
      type: 'order.paid',
      email: ({ order }) => ({
        key: key('order', order.id, 'paid'),
        to: order.email,
        from_email: 'shop@example.com',
        subject: `Order ${order.id} is paid`,
        html_body: '<p>Thank you for your order.</p>',
      }),
    },
    {
      name: 'refund',
      source: 'shop',
      type: 'order.refunded',
      email: ({ order }) => ({
        key: key('order', order.id, 'refunded'),
        to: order.email,
        from_email: 'shop@example.com',
        subject: `Order ${order.id} is refunded`,
        html_body: '<p>The money is on its way back to you.</p>',
      }),
    },
  ],
})
