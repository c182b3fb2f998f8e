/* fake_d3d11_cuda.c - the mock driver of fake_cuda.h, for textures of Direct3D 11. */
#define COBJMACROS
#include <d3d11.h>

#include "fake_cuda.h"

FAKE int CU cuD3D11GetDevice(int *device, IDXGIAdapter *adapter) {
    DXGI_ADAPTER_DESC is;
    *device = THE_CPU;
    return adapter == NULL || FAILED(IDXGIAdapter_GetDesc(adapter, &is));
}

/* A resource is the texture with a reference. CUDA accepts no typeless formats, and OBS's sRGB textures are typeless. */
FAKE int CU cuGraphicsD3D11RegisterResource(void **out, ID3D11Resource *texture, unsigned flags) {
    D3D11_TEXTURE2D_DESC is;
    ID3D11Texture2D_GetDesc((ID3D11Texture2D *)texture, &is);
    if (flags != 0 || is.Format != DXGI_FORMAT_R8G8B8A8_UNORM) {
        return 1;
    }
    ID3D11Resource_AddRef(texture);
    *out = texture;
    return 0;
}

FAKE int CU cuGraphicsResourceSetMapFlags_v2(void *resource, unsigned flags) {
    return resource == NULL || flags > 2;
}

FAKE int CU cuGraphicsUnregisterResource(void *resource) {
    ID3D11Resource_Release((ID3D11Resource *)resource);
    return 0;
}

static ID3D11DeviceContext *context_of(ID3D11Resource *texture, ID3D11Device **device) {
    ID3D11DeviceContext *c = NULL;
    ID3D11Resource_GetDevice(texture, device);
    ID3D11Device_GetImmediateContext(*device, &c);
    return c;
}

static int texture_read(void *resource, void *memory, uint32_t pitch, uint32_t width, uint32_t height) {
    ID3D11Device *device = NULL;
    ID3D11Texture2D *stage = NULL;
    D3D11_TEXTURE2D_DESC is;
    D3D11_MAPPED_SUBRESOURCE mapped;
    ID3D11DeviceContext *c = context_of(resource, &device);
    ID3D11Texture2D_GetDesc((ID3D11Texture2D *)resource, &is);
    int r = is.Width != width || is.Height != height;
    is.Usage = D3D11_USAGE_STAGING;
    is.BindFlags = 0;
    is.CPUAccessFlags = D3D11_CPU_ACCESS_READ;
    if (r == 0 && SUCCEEDED(ID3D11Device_CreateTexture2D(device, &is, NULL, &stage))) {
        ID3D11DeviceContext_CopyResource(c, (ID3D11Resource *)stage, (ID3D11Resource *)resource);
        r = FAILED(ID3D11DeviceContext_Map(c, (ID3D11Resource *)stage, 0, D3D11_MAP_READ, 0, &mapped));
        for (uint32_t y = 0; r == 0 && y < height; y++) {
            memcpy((uint8_t *)memory + (size_t)y * pitch * 4,
                   (const uint8_t *)mapped.pData + (size_t)y * mapped.RowPitch, (size_t)width * 4);
        }
        if (r == 0) {
            ID3D11DeviceContext_Unmap(c, (ID3D11Resource *)stage, 0);
        }
        ID3D11Texture2D_Release(stage);
    }
    ID3D11DeviceContext_Release(c);
    ID3D11Device_Release(device);
    return r;
}

static int texture_write(void *resource, const void *memory, uint32_t pitch, uint32_t width, uint32_t height) {
    ID3D11Device *device = NULL;
    ID3D11DeviceContext *c = context_of(resource, &device);
    (void)width;
    (void)height;
    ID3D11DeviceContext_UpdateSubresource(c, (ID3D11Resource *)resource, 0, NULL, memory, pitch * 4, 0);
    ID3D11DeviceContext_Release(c);
    ID3D11Device_Release(device);
    return 0;
}
