/* fake_obs_d3d11.c - the pictures of the mock obs.dll as textures of Direct3D 11. */
#define COBJMACROS
#include <d3d11.h>
#include <stdlib.h>
#include <string.h>

#include "fake_obs.h"

static ID3D11Device *device;
static ID3D11DeviceContext *context;

bool d3d11_open(void) {
    PFN_D3D11_CREATE_DEVICE create = NULL;
    HMODULE library = LoadLibraryW(L"d3d11.dll");
    FARPROC symbol = library != NULL ? GetProcAddress(library, "D3D11CreateDevice") : NULL;
    memcpy(&create, &symbol, sizeof create);
    return create != NULL && SUCCEEDED(create(NULL, D3D_DRIVER_TYPE_HARDWARE, NULL, 0, NULL, 0, D3D11_SDK_VERSION,
                                              &device, NULL, &context));
}

void *d3d11_device(void) {
    return device;
}

/* libobs's formats: its sRGB textures are typeless. */
static DXGI_FORMAT format_of(int format) {
    enum { GS_RGBA = 3, GS_RGBA_UNORM = 19 };
    return format == GS_RGBA         ? DXGI_FORMAT_R8G8B8A8_TYPELESS
           : format == GS_RGBA_UNORM ? DXGI_FORMAT_R8G8B8A8_UNORM
                                     : DXGI_FORMAT_UNKNOWN;
}

void d3d11_make(picture *p) {
    const D3D11_TEXTURE2D_DESC is = {.Width = p->width,
                                     .Height = p->height,
                                     .MipLevels = 1,
                                     .ArraySize = 1,
                                     .Format = format_of(p->format),
                                     .SampleDesc = {.Count = 1},
                                     .Usage = D3D11_USAGE_DEFAULT,
                                     .BindFlags = D3D11_BIND_SHADER_RESOURCE | D3D11_BIND_RENDER_TARGET};
    ID3D11Texture2D *texture = NULL;
    if (device != NULL && p->width * p->height > 0 &&
        SUCCEEDED(ID3D11Device_CreateTexture2D(device, &is, NULL, &texture))) {
        p->texture = texture;
        d3d11_store(p);
    }
}

void d3d11_discard(picture *p) {
    if (p->texture != NULL) {
        ID3D11Texture2D_Release((ID3D11Texture2D *)p->texture);
        p->texture = NULL;
    }
}

void d3d11_store(const picture *p) {
    if (p->texture != NULL) {
        ID3D11DeviceContext_UpdateSubresource(context, (ID3D11Resource *)p->texture, 0, NULL, p->pixels, p->width * 4,
                                              0);
    }
}

void d3d11_load(picture *p) {
    ID3D11Texture2D *stage = NULL;
    D3D11_TEXTURE2D_DESC is;
    D3D11_MAPPED_SUBRESOURCE mapped;
    if (p->texture == NULL) {
        return;
    }
    ID3D11Texture2D_GetDesc((ID3D11Texture2D *)p->texture, &is);
    is.Usage = D3D11_USAGE_STAGING;
    is.BindFlags = 0;
    is.CPUAccessFlags = D3D11_CPU_ACCESS_READ;
    if (FAILED(ID3D11Device_CreateTexture2D(device, &is, NULL, &stage))) {
        return;
    }
    ID3D11DeviceContext_CopyResource(context, (ID3D11Resource *)stage, (ID3D11Resource *)p->texture);
    if (SUCCEEDED(ID3D11DeviceContext_Map(context, (ID3D11Resource *)stage, 0, D3D11_MAP_READ, 0, &mapped))) {
        for (uint32_t y = 0; y < p->height; y++) {
            memcpy(p->pixels + (size_t)y * p->width * 4, (const uint8_t *)mapped.pData + (size_t)y * mapped.RowPitch,
                   (size_t)p->width * 4);
        }
        ID3D11DeviceContext_Unmap(context, (ID3D11Resource *)stage, 0);
    }
    ID3D11Texture2D_Release(stage);
}

bool d3d11_change(void) {
    for (picture *p = pictures; p != NULL; p = p->next) {
        d3d11_discard(p);
        memset(p->pixels, 0, (size_t)p->width * p->height * 4);
    }
    ID3D11DeviceContext_ClearState(context);
    ID3D11DeviceContext_Flush(context);
    ID3D11DeviceContext_Release(context);
    const ULONG left = ID3D11Device_Release(device);
    const bool opened = d3d11_open();
    for (picture *p = pictures; p != NULL; p = p->next) {
        d3d11_make(p);
    }
    return opened && left == 0;
}
